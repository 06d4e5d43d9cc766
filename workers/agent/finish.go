package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

const (
	// maxContent is under what the supervisor takes of one step.
	maxContent = 1000 << 10
	// maxBatch and maxBatchSteps bound one Append; the supervisor takes 64 steps and 8 MiB.
	maxBatch      = 2 << 20
	maxBatchSteps = 32
	maxError      = 2 << 10
)

// graceText asks for an answer when the budget is used up, in Hermes Agent's words.
const graceText = "You've reached the maximum number of tool-calling iterations allowed. Please provide a final response " +
	"summarizing what you've found and accomplished so far, without calling any more tools."

// The finish reasons of final replies that are not the model's own. They are stored with the reply, so that a turn whose
// reply is stored but not yet finished ends with the same outcome elsewhere.
const (
	finishedError     = "error"
	finishedInterrupt = "interrupted"
	finishedBudget    = "budget"
)

var outcomes = map[string]turnv1.Outcome{
	finishedError:     turnv1.Outcome_OUTCOME_FAILED,
	finishedInterrupt: turnv1.Outcome_OUTCOME_INTERRUPTED,
	finishedBudget:    turnv1.Outcome_OUTCOME_BUDGET,
}

// message makes the next step of a reply.
func (t *turn) message(r provider.Reply) *turnv1.Message {
	reason := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, r.FinishReason)
	return &turnv1.Message{
		Seq: t.next(), Role: roleAssistant, Content: clip(r.Text, maxContent), Reasoning: clip(r.Reasoning, maxContent),
		FinishReason: clip(reason, 64), Timestamp: toUnix(time.Now()),
		Usage: &turnv1.Usage{
			InputTokens: r.Usage.Input, OutputTokens: r.Usage.Output, CacheReadTokens: r.Usage.CacheRead, ReasoningTokens: r.Usage.Reasoning,
		},
	}
}

func (t *turn) finishCompleted(r provider.Reply) error {
	if r.FinishReason == provider.FinishLength {
		r.Text += "\n\n[The answer is longer than the model can give, and ends here.]"
	}
	m := t.message(r)
	if _, taken := outcomes[m.FinishReason]; taken {
		m.FinishReason = provider.FinishStop
	}
	return t.finish(m, "")
}

// finishStored finishes a turn whose final reply is stored already.
func (t *turn) finishStored(m *turnv1.Message) error {
	if _, special := outcomes[m.FinishReason]; special {
		return t.finish(m, provider.Shorten(m.Content))
	}
	return t.finish(m, "")
}

// finishInterrupted finishes with what the model had said, or with what it was doing.
func (t *turn) finishInterrupted(r provider.Reply) error {
	var why interruption
	errors.As(context.Cause(t.work), &why)
	r.FinishReason = finishedInterrupt
	if strings.TrimSpace(r.Text) == "" {
		r.Text = fmt.Sprintf("Interrupted after %.1f s, while: %s.", time.Since(t.begun).Seconds(), t.feed.now())
	}
	return t.finish(t.message(r), why.Error())
}

// finishFailed finishes with a text for the person, after what the model had said. The cause is the short form, for those
// who see many turns.
func (t *turn) finishFailed(partial, text string, cause error) error {
	r := provider.Reply{Text: text, FinishReason: finishedError}
	if strings.TrimSpace(partial) != "" {
		r.Text = clip(partial, maxContent-len(text)-2) + "\n\n" + text
	}
	return t.finish(t.message(r), cause.Error())
}

func (t *turn) finishPanicked(p *panicked) error {
	if t.session == nil {
		return p // not even loaded: there is no step to finish with
	}
	if _, open := t.openCalls(); len(open) > 0 {
		var lost []*turnv1.Message
		for i, c := range open {
			m := result(c, lostResult)
			m.Seq = t.next() + uint32(i)
			lost = append(lost, m)
		}
		if err := t.append(lost...); err != nil {
			return err
		}
	}
	return t.finishFailed("", fmt.Sprintf("⚠️ I failed on this message by an error of my own (%s). It is in the log: hermes-supervisor ctl logs %s. "+
		"Other conversations are not affected; sending the message again may work.", provider.Shorten(fmt.Sprint(p.value)), t.agent.host.Name), p)
}

// finishBudget makes one last call without tools.
func (t *turn) finishBudget() error {
	reply, err := t.answer(nil, &turnv1.Message{Role: roleUser, Content: graceText})
	var failure *provider.Error
	switch {
	case context.Cause(t.ctx) != nil:
		return context.Cause(t.ctx)
	case t.work.Err() != nil:
		return t.finishInterrupted(reply)
	case err != nil && !errors.As(err, &failure):
		return err
	}
	used := fmt.Sprintf("the %d rounds that a turn may take (agent.max_turns) are used up", t.agent.cfg.MaxTurns)
	if strings.TrimSpace(reply.Text) == "" {
		reply.Text = fmt.Sprintf("I stopped, because %s. What the tools did up to here is done. Say “go on” to have me continue.", used)
	}
	reply.FinishReason = finishedBudget
	return t.finish(t.message(reply), used)
}

// finish ends the turn with its final reply. The first reply of a session is stored as a step before, because with it the
// prompt is stored.
func (t *turn) finish(m *turnv1.Message, errText string) error {
	outcome, special := outcomes[m.FinishReason]
	if !special {
		outcome = turnv1.Outcome_OUTCOME_COMPLETED
	}
	if t.unsaved {
		if err := t.append(m); err != nil {
			return err
		}
	}
	t.feed.at("storing the answer")
	t.feed.flush(t.ctx)
	req := &hostv1.FinishRequest{TurnId: t.req.TurnId, Fence: t.req.Fence, Reply: m, Outcome: outcome, Error: clip(errText, maxError)}
	err := t.persist(func() error {
		_, err := t.agent.host.Turns.Finish(t.ctx, req)
		return err
	})
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	t.log.Info("turn ended", "outcome", strings.TrimPrefix(outcome.String(), "OUTCOME_"), "model", t.model, "provider_calls", t.asked,
		"rounds", t.rounds(), "reply_bytes", len(m.Content), "took", time.Since(t.begun).Round(time.Millisecond).String())
	return nil
}

// batches splits steps into what one Append may carry.
func batches(steps []*turnv1.Message) iter.Seq[[]*turnv1.Message] {
	return func(yield func([]*turnv1.Message) bool) {
		for len(steps) > 0 {
			n, size := 0, 0
			for n < len(steps) && n < maxBatchSteps {
				if size += proto.Size(steps[n]); n > 0 && size > maxBatch {
					break
				}
				n++
			}
			if !yield(steps[:n]) {
				return
			}
			steps = steps[n:]
		}
	}
}

// clip returns the beginning of text as valid UTF-8 of at most limit bytes.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= limit {
		return text
	}
	for limit = max(limit, 0); limit > 0 && !utf8.RuneStart(text[limit]); limit-- {
	}
	return text[:limit]
}
