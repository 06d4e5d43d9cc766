package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

const (
	// maxContinuations is how often an answer that reached the model's output limit is continued.
	maxContinuations = 3
	// maxRetryAfter is the longest wait that a provider may ask for; a person does not wait longer for an answer.
	maxRetryAfter = 10 * time.Minute

	continueText = "[Your previous answer reached the output limit and was cut. Go on exactly where it ends, without repeating any of it.]"
	nudgeText    = "[The tool calls above have returned, but your answer was empty. Use their results and go on with the task.]"
)

// answer makes a provider call, repeats it where that may help, and continues an answer that was cut at the output limit.
// What it adds to the conversation for that is not stored. The reply holds what there is, also beside an error.
func (t *turn) answer(tools []provider.Tool, extra ...*turnv1.Message) (whole provider.Reply, err error) {
	t.feed.at("waiting for the model")
	for n := 0; ; n++ {
		more := extra
		if n > 0 {
			more = append(extra[:len(extra):len(extra)],
				&turnv1.Message{Role: roleAssistant, Content: whole.Text}, &turnv1.Message{Role: roleUser, Content: continueText})
		}
		reply, err := t.insist(tools, more, whole.Text)
		usage := whole.Usage.Add(reply.Usage)
		reply.Text, reply.Reasoning = whole.Text+reply.Text, whole.Reasoning+reply.Reasoning
		gained := len(reply.Text) > len(whole.Text)
		whole, whole.Usage = reply, usage
		if n > 0 && provider.ClassOf(err) == provider.Empty {
			err = nil // the answer was at its end
		}
		long := len(whole.Text)+len(whole.Reasoning) > provider.MaxReply/2
		if err != nil || whole.FinishReason != provider.FinishLength || len(whole.ToolCalls) > 0 || !gained || long || n == maxContinuations {
			return whole, err
		}
	}
}

// insist makes one provider call with its repeats. said is what the step has shown before this call.
func (t *turn) insist(tools []provider.Tool, extra []*turnv1.Message, said string) (provider.Reply, error) {
	var best provider.Reply
	seq, nudge := t.next(), []*turnv1.Message(nil)
	for attempt := 1; ; attempt++ {
		req := provider.Request{Model: t.model, System: t.system, Tools: tools, Messages: t.conversation(append(extra[:len(extra):len(extra)], nudge...))}
		reply, err := t.call(req, seq)
		if err == nil {
			t.agent.verdict.note(nil)
			return reply, nil
		}
		if len(reply.Text) >= len(best.Text) {
			best = reply
		}
		best.ToolCalls = nil // half an answer has half its calls
		var failure *provider.Error
		if t.work.Err() != nil || !errors.As(err, &failure) {
			return best, err
		}
		wait, again := t.decide(attempt, failure)
		if !again {
			t.tries = attempt
			t.agent.verdict.note(failure)
			return best, failure
		}
		if failure.Class == provider.Empty && t.steps[len(t.steps)-1].Role == roleTool {
			nudge = []*turnv1.Message{{Role: roleUser, Content: nudgeText}}
		}
		t.log.Warn("provider call failed, will repeat", "error", failure, "wait", wait.Round(time.Millisecond).String(), "try", attempt)
		t.feed.at(fmt.Sprintf("waiting to ask the model again (%s)", failure.Class))
		if !pause(t.work, wait) {
			return best, context.Cause(t.work)
		}
		if reply.Text != "" {
			t.feed.replace(seq, said)
		}
		t.feed.at("waiting for the model")
	}
}

// decide says whether and when a failed call is made again.
func (t *turn) decide(attempt int, e *provider.Error) (time.Duration, bool) {
	if own := t.agent.cfg.Model; e.Class == provider.ModelNotFound && own != "" && t.model != own {
		t.feed.notice(fmt.Sprintf("The model %s of this conversation is not to be had, %s answers instead.", t.model, own))
		t.model = own
		return 0, true
	}
	if e.Class == provider.ContextOverflow && t.narrow() {
		return 0, true
	}
	return retry(attempt, t.agent.cfg.APIRetries, e, rand.Float64())
}

// retry is the policy for repeats as Hermes Agent does it: 2 s doubled up to a minute, 5 s doubled up to two
// for answers that were no good, up to half as much again by luck (between 0 and 1), and never sooner than the provider asks.
func retry(attempt, attempts int, e *provider.Error, luck float64) (time.Duration, bool) {
	if !e.Class.Retry() || attempt >= attempts || e.RetryAfter > maxRetryAfter {
		return 0, false
	}
	base, limit := 2*time.Second, time.Minute
	if e.Class.Slow() {
		base, limit = 5*time.Second, 2*time.Minute
	}
	wait := min(base<<min(attempt-1, 10), limit)
	wait += time.Duration(luck * float64(wait) / 2)
	return max(wait, e.RetryAfter), true
}

// call makes one provider call and shows its text.
func (t *turn) call(req provider.Request, seq uint32) (provider.Reply, error) {
	t.asked++
	reply, err := t.agent.provider.Stream(t.work, req, func(d provider.Delta) {
		t.agent.host.Work.Step()
		t.feed.text(seq, d.Text)
		if d.Text == "" {
			t.feed.at("the model thinks")
		} else {
			t.feed.at("the model answers")
		}
	})
	switch {
	case err != nil || len(reply.ToolCalls) > 0:
	case reply.FinishReason == provider.FinishContentFilter:
		err = &provider.Error{Class: provider.Refused, Message: "the answer was stopped by the provider's content filter"}
	case strings.TrimSpace(reply.Text) != "":
	case reply.FinishReason == provider.FinishLength:
		err = &provider.Error{Class: provider.Empty, Message: "the model used up its output limit before it said anything"}
	case reply.Reasoning != "":
		err = &provider.Error{Class: provider.Empty, Message: "the model thought, but gave no answer"}
	default:
		err = &provider.Error{Class: provider.Empty, Message: "the model gave no answer"}
	}
	return reply, err
}
