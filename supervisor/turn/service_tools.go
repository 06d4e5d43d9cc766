package turn

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

type toolsService struct {
	hostv1.UnimplementedToolsServer
	hub *Hub
}

func (s *toolsService) List(ctx context.Context, _ *hostv1.ListRequest) (*hostv1.ListResponse, error) {
	specs, err := s.hub.tools.list(ctx)
	if err != nil {
		return nil, err
	}
	return &hostv1.ListResponse{Tools: specs}, nil
}

func (s *toolsService) Call(r *hostv1.CallRequest, out grpc.ServerStreamingServer[hostv1.CallEvent]) error {
	err := errors.Join(checkID("call_id", r.CallId), checkID("tool", r.Tool), checkText("arguments_json", r.ArgumentsJson, maxStep))
	if err != nil {
		return err
	}
	ctx := out.Context()
	id, _ := ipc.IdentityFrom(ctx)
	l, ls, err := s.hub.held(r.TurnId, r.Fence, id.Worker)
	if err != nil {
		return err
	}
	req := callRequest{id: r.CallId, tool: r.Tool, arguments: r.ArgumentsJson, seq: r.Seq}
	res, err := s.hub.call(ctx, l, ls, req, func(line string) error {
		return out.Send(&hostv1.CallEvent{Event: &hostv1.CallEvent_Progress{Progress: line}})
	})
	if err != nil {
		return err
	}
	return out.Send(&hostv1.CallEvent{Event: &hostv1.CallEvent_Result{Result: res}})
}
