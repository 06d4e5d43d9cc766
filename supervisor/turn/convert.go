package turn

import (
	"math"
	"time"

	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
	"github.com/hermes-supervisor/hermes-supervisor/store"
)

var outcomes = map[store.Outcome]turnv1.Outcome{
	store.OutcomeCompleted:   turnv1.Outcome_OUTCOME_COMPLETED,
	store.OutcomeInterrupted: turnv1.Outcome_OUTCOME_INTERRUPTED,
	store.OutcomeFailed:      turnv1.Outcome_OUTCOME_FAILED,
	store.OutcomeBudget:      turnv1.Outcome_OUTCOME_BUDGET,
	store.OutcomeParked:      turnv1.Outcome_OUTCOME_PARKED,
}

func outcomeToProto(o store.Outcome) turnv1.Outcome { return outcomes[o] }

// outcomeFromProto returns "" for a value that is none of ours.
func outcomeFromProto(o turnv1.Outcome) store.Outcome {
	for s, p := range outcomes {
		if p == o {
			return s
		}
	}
	return ""
}

var dispositions = map[store.Disposition]hostv1.Disposition{
	store.Started:     hostv1.Disposition_DISPOSITION_STARTED,
	store.Queued:      hostv1.Disposition_DISPOSITION_QUEUED,
	store.Interrupted: hostv1.Disposition_DISPOSITION_INTERRUPTED,
	store.Steered:     hostv1.Disposition_DISPOSITION_STEERED,
}

func busyFromProto(b hostv1.Busy) store.Busy {
	switch b {
	case hostv1.Busy_BUSY_INTERRUPT:
		return store.BusyInterrupt
	case hostv1.Busy_BUSY_STEER:
		return store.BusySteer
	}
	return store.BusyQueue
}

func messageToProto(m store.Message) *turnv1.Message {
	p := &turnv1.Message{
		Id: m.ID, Role: m.Role, Content: m.Content, ToolCallId: m.ToolCallID, ToolName: m.ToolName, Reasoning: m.Reasoning,
		FinishReason: m.FinishReason, Timestamp: unixSeconds(m.Time), TurnId: m.TurnID, Seq: m.Seq, Usage: usageToProto(m.Usage),
	}
	for _, c := range m.ToolCalls {
		p.ToolCalls = append(p.ToolCalls, &turnv1.ToolCall{Id: c.ID, Name: c.Name, ArgumentsJson: c.Arguments})
	}
	return p
}

func messageFromProto(p *turnv1.Message) store.Message {
	m := store.Message{
		Seq: p.GetSeq(), Role: p.GetRole(), Content: p.GetContent(), ToolCallID: p.GetToolCallId(), ToolName: p.GetToolName(),
		Reasoning: p.GetReasoning(), FinishReason: p.GetFinishReason(), Time: fromUnix(p.GetTimestamp()), Usage: usageFromProto(p.GetUsage()),
	}
	for _, c := range p.GetToolCalls() {
		m.ToolCalls = append(m.ToolCalls, store.ToolCall{ID: c.GetId(), Name: c.GetName(), Arguments: c.GetArgumentsJson()})
	}
	return m
}

func messagesFromProto(ps []*turnv1.Message) []store.Message {
	var ms []store.Message
	for _, p := range ps {
		ms = append(ms, messageFromProto(p))
	}
	return ms
}

func usageToProto(u store.Usage) *turnv1.Usage {
	if u == (store.Usage{}) {
		return nil
	}
	return &turnv1.Usage{InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.CacheRead, ReasoningTokens: u.Reasoning}
}

// usageFromProto ignores counts below zero, which would spoil the session's sums.
func usageFromProto(p *turnv1.Usage) store.Usage {
	return store.Usage{
		Input: max(p.GetInputTokens(), 0), Output: max(p.GetOutputTokens(), 0),
		CacheRead: max(p.GetCacheReadTokens(), 0), Reasoning: max(p.GetReasoningTokens(), 0),
	}
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

// fromUnix returns no time for what is none.
func fromUnix(s float64) time.Time {
	micro := math.Round(s * 1e6)
	if !(micro > 0 && micro < 1e18) { // also what is no number
		return time.Time{}
	}
	return time.UnixMicro(int64(micro))
}
