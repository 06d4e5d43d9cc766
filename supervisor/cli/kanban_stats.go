package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// boardCounts is the document of `kanban stats`, in the form of Hermes.
type boardCounts struct {
	ByStatus    map[string]int64            `json:"by_status"`
	ByAssignee  map[string]map[string]int64 `json:"by_assignee"`
	OldestReady *int64                      `json:"oldest_ready_age_seconds"`
	Now         int64                       `json:"now"`
}

func (p *program) kanbanStats() *cobra.Command {
	r := &controlv1.CountTasksRequest{}
	c := &cobra.Command{
		Use:   "stats",
		Short: "Count the tasks of a board by status and by assignee",
		Example: `  hermes-supervisor kanban stats
  hermes-supervisor kanban stats --board ops -o json | jq .by_status.ready`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.connected(c.Context(), func(conn grpc.ClientConnInterface) error {
				s, err := controlv1.NewBoardStatisticsClient(conn).Count(c.Context(), r)
				if err != nil {
					return err
				}
				counts := boardCounts{ByStatus: s.ByStatus, ByAssignee: map[string]map[string]int64{}, OldestReady: s.OldestReadyAgeSeconds, Now: s.Now}
				if counts.ByStatus == nil {
					counts.ByStatus = map[string]int64{}
				}
				for who, n := range s.ByAssignee {
					counts.ByAssignee[who] = n.ByStatus
				}
				if p.output == outputJSON {
					return p.printJSON(counts)
				}
				return counts.table(forPeople(p.out))
			})
		},
	}
	return p.withOutput(boardFlag(c, &r.Board))
}

// table has a line a status that occurs and a column an assignee.
func (b boardCounts) table(w io.Writer) error {
	if len(b.ByStatus) == 0 {
		_, err := fmt.Fprintln(w, "no tasks")
		return err
	}
	who := slices.Sorted(maps.Keys(b.ByAssignee))
	header := "STATUS | TASKS"
	for _, name := range who {
		header += " | " + oneLine(name, 24)
	}
	var lines [][]string
	for _, status := range slices.Sorted(maps.Keys(b.ByStatus)) {
		line := []string{status, strconv.FormatInt(b.ByStatus[status], 10)}
		for _, name := range who {
			n := ""
			if count := b.ByAssignee[name][status]; count > 0 {
				n = strconv.FormatInt(count, 10)
			}
			line = append(line, n)
		}
		lines = append(lines, line)
	}
	if err := rows(w, header, lines); err != nil || b.OldestReady == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nthe oldest ready task waits for %s\n", span(float64(*b.OldestReady)))
	return err
}
