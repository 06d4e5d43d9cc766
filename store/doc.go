// Package store owns the databases of the supervisor: state.db (conversations, and what makes turns durable), the kanban
// boards, and supervisor.db (the journal). It is the only code in the system that has them open.
//
// The rules: one goroutine a file writes, in groups, and answers after COMMIT. Reads use a small fixed pool and never
// hold the writer up. Every write has a key under which its repetition is known. Hermes' tables keep their names and
// meanings; what is added has the prefix hs_. No code may open, read or copy the database files beside SQLite: closing
// a descriptor of one drops the locks that keep it alive.
//
// DESIGN.md in this directory says why, and what happens at each limit.
package store
