package ipc

import "context"

// An Identity says who is at the other end of a connection. It is made by the supervisor when it starts a worker
// and cannot be changed or claimed by the worker.
type Identity struct {
	Worker      string // "agent-1"
	Role        string
	Platform    string // of a gateway: the only platform it may accept and deliver for
	Incarnation uint64
	Secrets     []string // names that Config.Secret may return to this worker
}

type identityKey struct{}

// WithIdentity returns a context that carries id.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// IdentityFrom returns the caller's identity. ok is false outside of a served call.
func IdentityFrom(ctx context.Context) (id Identity, ok bool) {
	id, ok = ctx.Value(identityKey{}).(Identity)
	return id, ok
}
