package catalogue

import "slices"

// BuiltIn is the owner of the tools that come with the system.
const BuiltIn = "hermes-supervisor itself"

// BuiltInTools returns the names of the tools that come with the system, sorted. They stand here, and not where the
// tools are, because the supervisor must know them without linking a worker; a test of the tools worker compares.
func BuiltInTools() []string {
	return []string{
		"kanban_block", "kanban_complete", "kanban_create", "kanban_list", "kanban_show", "memory", "read_file",
		"search_files", "session_search", "terminal", "write_file",
	}
}

// Clash returns a *ClashError if a tool of e has the name of one of the system or of another plugin.
func (c *Catalogue) Clash(e Entry) error {
	builtIn := BuiltInTools()
	for _, t := range e.Tools {
		if slices.Contains(builtIn, t.Name) {
			return &ClashError{Tool: t.Name, Owner: BuiltIn, Other: e.Name}
		}
		if owner, ok := c.Owner(t.Name, e.Name); ok {
			return &ClashError{Tool: t.Name, Owner: owner, Other: e.Name}
		}
	}
	return nil
}
