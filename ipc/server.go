package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"google.golang.org/grpc"
)

// PanicFunc is told of a panic in a served call, with its stack, and must not block.
type PanicFunc func(method string, value any, stack []byte)

// bufferBytes of reading and writing a connection keeps for its life, on each side. Most calls here are below 1 KiB; a longer
// message is read past the buffer. gRPC's own 32 KiB is for a few connections over a network, not for two a worker.
const bufferBytes = 8 << 10

// A stream's and a connection's bytes that may be on their way before the reader has taken them. They are fixed, because
// gRPC finds windows of its own by a ping after nearly every message: two more frames, each of which wakes a process.
const (
	streamWindow     = 512 << 10
	connectionWindow = 1 << 20
)

// ServerOptions are the options of every server of ours: message limits, recovery (a bug in one call costs that
// call), and error mapping. With identify, each call is checked against the table of who may call what and runs
// with the identity in its context; without it (in a worker, where only the supervisor calls) nothing is checked.
func ServerOptions(identify func(context.Context) (Identity, error), onPanic PanicFunc) []grpc.ServerOption {
	enter := func(ctx context.Context, method string) (context.Context, error) {
		if identify == nil {
			return ctx, nil
		}
		id, err := identify(ctx)
		if err != nil {
			return nil, err
		}
		if !Allowed(id.Role, method) {
			return nil, fmt.Errorf("%s (%s) may not call %s: %w", id.Worker, id.Role, method, ErrDenied)
		}
		return WithIdentity(ctx, id), nil
	}
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
		defer recovered(info.FullMethod, onPanic, &err)
		if ctx, err = enter(ctx, info.FullMethod); err != nil {
			return nil, ToStatus(err)
		}
		reply, err = handle(ctx, req)
		return reply, ToStatus(err)
	}
	stream := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
		defer recovered(info.FullMethod, onPanic, &err)
		ctx, err := enter(ss.Context(), info.FullMethod)
		if err != nil {
			return ToStatus(err)
		}
		return ToStatus(handle(srv, &serverStream{ServerStream: ss, ctx: ctx}))
	}
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ChainUnaryInterceptor(unary),
		grpc.ChainStreamInterceptor(stream),
	}
}

func recovered(method string, onPanic PanicFunc, err *error) {
	if p := recover(); p != nil {
		if onPanic != nil {
			onPanic(method, p, debug.Stack())
		}
		*err = ToStatus(fmt.Errorf("%s: internal error: %v", method, p))
	}
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

// DialOptions are the options of every connection of ours: message limits, a deadline on every unary call, and
// error mapping.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithChainUnaryInterceptor(deadlineUnary),
		grpc.WithChainStreamInterceptor(mapStream),
		// go-plugin's connection goes over an inherited socket; an idle close would end a brokered one for good.
		grpc.WithIdleTimeout(0),
	}
}

func mapStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, FromStatus(method, err)
	}
	return &clientStream{ClientStream: s, method: method}, nil
}

type clientStream struct {
	grpc.ClientStream
	method string
}

func (s *clientStream) RecvMsg(m any) error { return s.mapped(s.ClientStream.RecvMsg(m)) }
func (s *clientStream) SendMsg(m any) error { return s.mapped(s.ClientStream.SendMsg(m)) }

func (s *clientStream) mapped(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return FromStatus(s.method, err)
}
