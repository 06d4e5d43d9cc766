package supervisor

import (
	"context"
	"fmt"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

// boardStatistics counts tasks for the operator.
type boardStatistics struct {
	controlv1.UnimplementedBoardStatisticsServer
	boards *boards
}

// Count counts the tasks of one board.
func (b boardStatistics) Count(ctx context.Context, r *controlv1.CountTasksRequest) (*controlv1.CountTasksResponse, error) {
	board, err := b.boards.get(r.Board)
	if err != nil {
		return nil, err
	}
	counted, ok := board.(*store.Board)
	if !ok {
		return nil, fmt.Errorf("board %s: %w", r.Board, ipc.ErrRefused)
	}
	s, err := counted.Stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the tasks of board %q: %w", r.Board, err)
	}
	out := &controlv1.CountTasksResponse{ByStatus: s.ByStatus, ByAssignee: map[string]*controlv1.StatusCounts{}, Now: s.Now}
	for who, counts := range s.ByAssignee {
		out.ByAssignee[who] = &controlv1.StatusCounts{ByStatus: counts}
	}
	if s.OldestReady > 0 {
		age := max(0, s.Now-s.OldestReady)
		out.OldestReadyAgeSeconds = &age
	}
	return out, nil
}
