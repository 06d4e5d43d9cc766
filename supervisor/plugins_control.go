package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
	"github.com/hermes-supervisor/hermes-supervisor/plugins/catalogue"
)

// pluginService is hermes.control.v1.Plugins.
type pluginService struct {
	controlv1.UnimplementedPluginsServer
	host *pluginHost
}

func (h *pluginHost) register(s *grpc.Server) {
	controlv1.RegisterPluginsServer(s, &pluginService{host: h})
}

func (s *pluginService) ListPlugins(context.Context, *controlv1.ListPluginsRequest) (*controlv1.ListPluginsResponse, error) {
	r := &controlv1.ListPluginsResponse{}
	if s.host.broken != nil {
		return nil, s.host.broken
	}
	for _, e := range s.host.cat.List() {
		p := s.host.status(e)
		p.DataBytes = s.host.cat.DataBytes(e.Name)
		r.Plugins = append(r.Plugins, p)
	}
	return r, nil
}

func (s *pluginService) AddPlugin(_ context.Context, r *controlv1.AddPluginRequest) (*controlv1.AddPluginResponse, error) {
	var e catalogue.Entry
	if err := json.Unmarshal(r.EntryJson, &e); err != nil {
		return nil, fmt.Errorf("plugin: %w: %w", ipc.ErrInvalid, err)
	}
	if err := checkGranted(e.Granted, s.host.shut); err != nil {
		return nil, fmt.Errorf("plugin %s: %w: %w", e.Name, ipc.ErrInvalid, err)
	}
	if err := s.host.put(e); err != nil {
		return nil, kindOf(err)
	}
	return &controlv1.AddPluginResponse{Plugin: s.host.status(e)}, nil
}

func (s *pluginService) RemovePlugin(ctx context.Context, r *controlv1.RemovePluginRequest) (*controlv1.RemovePluginResponse, error) {
	return &controlv1.RemovePluginResponse{}, kindOf(s.host.remove(ctx, r.Name, r.Data))
}

func (s *pluginService) EnablePlugin(_ context.Context, r *controlv1.EnablePluginRequest) (*controlv1.EnablePluginResponse, error) {
	p, err := s.set(r.Name, catalogue.Enabled)
	return &controlv1.EnablePluginResponse{Plugin: p}, err
}

func (s *pluginService) DisablePlugin(_ context.Context, r *controlv1.DisablePluginRequest) (*controlv1.DisablePluginResponse, error) {
	p, err := s.set(r.Name, catalogue.Disabled)
	return &controlv1.DisablePluginResponse{Plugin: p}, err
}

func (s *pluginService) set(name, state string) (*controlv1.Plugin, error) {
	if err := s.host.set(name, state); err != nil {
		return nil, kindOf(err)
	}
	e, err := s.host.cat.Get(name)
	return s.host.status(e), kindOf(err)
}

// kindOf gives an error of the catalogue the kind by which it crosses the wire.
func kindOf(err error) error {
	var clash *catalogue.ClashError
	switch {
	case errors.Is(err, catalogue.ErrNotThere):
		return fmt.Errorf("%w: %w", err, ipc.ErrNotFound)
	case errors.As(err, &clash):
		return fmt.Errorf("%w: %w", err, ipc.ErrExists)
	case errors.Is(err, catalogue.ErrChanged), errors.Is(err, catalogue.ErrUnsafe):
		return fmt.Errorf("%w: %w", err, ipc.ErrDenied)
	}
	return err
}

// PluginStatus is an entry of the catalogue as commands show it, without what only a running supervisor knows.
func PluginStatus(e catalogue.Entry) *controlv1.Plugin {
	p := &controlv1.Plugin{
		Name: e.Name, Version: e.Version, Sha256: e.SHA256, State: e.State, Reason: e.Reason,
		Since: float64(e.Since.Unix()),
	}
	for _, t := range e.Tools {
		p.Tools = append(p.Tools, t.Name)
	}
	return p
}

func (h *pluginHost) status(e catalogue.Entry) *controlv1.Plugin {
	p := PluginStatus(e)
	h.mu.Lock()
	g := h.guests[e.Name]
	if g != nil && p.Reason == "" {
		p.Reason = g.problems
	}
	h.mu.Unlock()
	if g == nil {
		return p
	}
	if m, err := h.fleet.member(g.worker); err == nil {
		st := m.Status()
		p.Worker, p.WorkerState, p.Pid = g.worker, st.State, st.Pid
		if p.Reason == "" && st.State != "ready" && st.State != "idle" {
			p.Reason = st.Detail
		}
	}
	return p
}
