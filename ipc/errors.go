package ipc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The kinds of failure that a caller decides on. They cross the wire as gRPC codes and become process exit codes;
// errors.Is works on both sides.
var (
	ErrInvalid   = errors.New("invalid request")       // the caller must change it
	ErrNotFound  = errors.New("not found")             //
	ErrExists    = errors.New("already there")         //
	ErrDenied    = errors.New("not allowed")           //
	ErrLeaseLost = errors.New("lease lost")            // somebody newer owns the turn; stop
	ErrRefused   = errors.New("refused in this state") // not now, not by repeating
	ErrBusy      = errors.New("too busy")              // try again later
	ErrGone      = errors.New("peer is gone")          // the process at the other end ended or never was
	ErrTimeout   = errors.New("took too long")         // outcome unknown
	ErrCancelled = errors.New("cancelled")             //
	// ErrNotServed is a method that the program at the other end does not have: it is older, or need not have it.
	ErrNotServed = errors.New("not served by its program")

	// ErrFull is a way of being too busy that waiting a moment does not end: a person must make room. Whoever only asks
	// for ErrBusy tries again later, which is right for a program; a person wants to know at once.
	ErrFull = fmt.Errorf("disk is full: %w", ErrBusy)
)

var kinds = []struct {
	err  error
	code codes.Code
	exit int
}{
	{ErrInvalid, codes.InvalidArgument, ExitUsage},
	{ErrNotFound, codes.NotFound, ExitFailed},
	{ErrExists, codes.AlreadyExists, ExitFailed},
	{ErrDenied, codes.PermissionDenied, ExitFailed},
	{ErrLeaseLost, codes.Aborted, ExitFailed},
	{ErrRefused, codes.FailedPrecondition, ExitFailed},
	{ErrFull, codes.OutOfRange, ExitTryAgain}, // before ErrBusy, which it is as well; no code fits better
	{ErrBusy, codes.ResourceExhausted, ExitTryAgain},
	{ErrGone, codes.Unavailable, ExitTryAgain},
	{ErrTimeout, codes.DeadlineExceeded, ExitTryAgain},
	{ErrCancelled, codes.Canceled, ExitFailed},
	{ErrNotServed, codes.Unimplemented, ExitFailed},
}

// Exit codes of every command, after sysexits.h where that has a number.
const (
	ExitOK       = 0
	ExitFailed   = 1
	ExitUsage    = 2
	ExitPartial  = 3  // done but for what is named; other programs for backups use it, too
	ExitTryAgain = 75 // EX_TEMPFAIL
	ExitConfig   = 78 // EX_CONFIG
)

// ExitCode maps an error to the exit code of a command.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.exit
		}
	}
	return ExitFailed
}

// ToStatus makes err ready for the wire: an error of a kind above becomes its code, everything else Internal. The
// text stays whole, as both ends belong to one installation.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return status.Error(k.code, err.Error())
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// A RemoteError is an error that came over the wire.
type RemoteError struct {
	Method  string
	Message string
	kind    error
}

func (e *RemoteError) Error() string {
	if e.Message == "" {
		return e.Method
	}
	return e.Message
}

// Unwrap returns the kind, so that errors.Is(err, ipc.ErrLeaseLost) works for the caller.
func (e *RemoteError) Unwrap() error { return e.kind }

// tooLarge says whether gRPC itself has refused a message for its size, at either end. Its code for it is that of a peer that is
// busy, for which callers try again; this one will never pass.
func tooLarge(s *status.Status) bool {
	text := s.Message()
	own := strings.HasPrefix(text, "grpc: ") || strings.HasPrefix(text, "trying to send message")
	return own && s.Code() == codes.ResourceExhausted && strings.Contains(text, "larger than max")
}

// FromStatus turns what a gRPC call returned into a *RemoteError of one of the kinds above.
func FromStatus(method string, err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	if tooLarge(s) {
		return &RemoteError{Method: method, Message: s.Message(), kind: ErrInvalid}
	}
	for _, k := range kinds {
		if k.code == s.Code() {
			return &RemoteError{Method: method, Message: s.Message(), kind: k.err}
		}
	}
	message := s.Message()
	if s.Code() != codes.Internal && s.Code() != codes.Unknown {
		message = fmt.Sprintf("%s: %s", s.Code(), message)
	}
	return &RemoteError{Method: method, Message: message}
}

// WithKind gives err a kind, by which callers and exit codes decide, without changing its text.
func WithKind(err, kind error) error { return &kindError{err, kind} }

type kindError struct {
	error
	kind error
}

func (e *kindError) Unwrap() []error { return []error{e.error, e.kind} }
