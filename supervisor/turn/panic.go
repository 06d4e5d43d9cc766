package turn

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// panicPause is how long what met a panic is left alone: it may meet the same one again, and each is logged with its stack.
const panicPause = longestRetry

var errPanicked = errors.New("internal error of the supervisor, its log has it")

// guard does a piece of work. A panic in it costs that piece and nothing else: it is logged, and undo (nil: nothing) puts
// right what the piece has left, as after any other failure. For that, locks that are held over what may panic are let go of
// by defer.
func (h *Hub) guard(what string, work, undo func()) (done bool) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		h.log.Error("panic in the hub", "work", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		if undo != nil {
			undo()
		}
	}()
	work()
	return true
}
