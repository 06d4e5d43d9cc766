package store

import "context"

// BoardStats counts the tasks of a board that are not archived, as Hermes counts them.
type BoardStats struct {
	ByStatus   map[string]int64
	ByAssignee map[string]map[string]int64 // then by status; tasks without an assignee are not in it
	// OldestReady is when the task was created that has been ready for longest, 0 if none is.
	OldestReady int64
	Now         int64
}

// Stats counts the tasks of the board.
func (b *Board) Stats(ctx context.Context) (BoardStats, error) {
	type group struct {
		assignee, status string
		tasks            int64
	}
	return read(ctx, b.database, func(t *tx) (BoardStats, error) {
		s := BoardStats{ByStatus: map[string]int64{}, ByAssignee: map[string]map[string]int64{}, Now: b.now().Unix()}
		groups, err := all(t, func(row scanner) (g group, err error) { return g, row.Scan(&g.assignee, &g.status, &g.tasks) },
			"SELECT coalesce(assignee, ''), status, count(*) FROM tasks WHERE status <> 'archived' GROUP BY 1, 2")
		if err != nil {
			return s, err
		}
		for _, g := range groups {
			s.ByStatus[g.status] += g.tasks
			if g.assignee == "" {
				continue
			}
			if s.ByAssignee[g.assignee] == nil {
				s.ByAssignee[g.assignee] = map[string]int64{}
			}
			s.ByAssignee[g.assignee][g.status] = g.tasks
		}
		err = t.get("SELECT coalesce(min(created_at), 0) FROM tasks WHERE status = 'ready'", nil, &s.OldestReady)
		return s, err
	})
}
