package api

import (
	"time"

	turnv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/turn/v1"
)

// defaultModel is what the agent is called as a model. Clients may ask for any other name: which model answers is
// the agent's configuration, and the name asked for is echoed.
const defaultModel = "hermes-agent"

// completion is a whole answer, or one chunk of a streamed one.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
	Hermes  *outcome `json:"hermes,omitempty"`
	Error   *failure `json:"error,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *message `json:"delta,omitempty"`
	Logprobs     *string  `json:"logprobs"`
	FinishReason *string  `json:"finish_reason"`
}

// message is a whole one, or what is added to it.
type message struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type usage struct {
	Prompt     int64         `json:"prompt_tokens"`
	Completion int64         `json:"completion_tokens"`
	Total      int64         `json:"total_tokens"`
	PromptBy   promptDetails `json:"prompt_tokens_details"`
	AnswerBy   answerDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached int64 `json:"cached_tokens"`
}

type answerDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// outcome is what this system adds to an answer; clients of the protocol skip it.
type outcome struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
	Outcome   string `json:"outcome"` // completed | interrupted | failed | budget | parked
	Error     string `json:"error,omitempty"`
}

// progress is the data of an event hermes.tool.progress.
type progress struct {
	Tool   string `json:"tool,omitempty"`
	CallID string `json:"tool_call_id"`
	Status string `json:"status"` // running | waiting | completed | failed
	Label  string `json:"label,omitempty"`
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

type modelList struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}

func (a *adapter) describe(id string) model {
	return model{ID: id, Object: "model", Created: a.started.Unix(), OwnedBy: "hermes-supervisor"}
}

func usageOf(u *turnv1.Usage) *usage {
	prompt, answer := u.GetInputTokens()+u.GetCacheReadTokens(), u.GetOutputTokens()
	return &usage{
		Prompt: prompt, Completion: answer, Total: prompt + answer,
		PromptBy: promptDetails{u.GetCacheReadTokens()}, AnswerBy: answerDetails{u.GetReasoningTokens()},
	}
}

var outcomes = map[turnv1.Outcome]string{
	turnv1.Outcome_OUTCOME_COMPLETED: "completed", turnv1.Outcome_OUTCOME_INTERRUPTED: "interrupted",
	turnv1.Outcome_OUTCOME_FAILED: "failed", turnv1.Outcome_OUTCOME_BUDGET: "budget",
	turnv1.Outcome_OUTCOME_PARKED: "parked",
}

// finishReason is "length" only where something was cut off. A failed turn has an answer that says what happened,
// so it stops like any other: an HTTP error would make clients run it again, with its effects.
func finishReason(o turnv1.Outcome) string {
	if o == turnv1.Outcome_OUTCOME_BUDGET {
		return "length"
	}
	return "stop"
}

// An answer is what all parts of the answer to one request have in common.
type answer struct {
	id, model string
	created   int64
}

func newAnswer(turnID, model string) answer {
	if model == "" {
		model = defaultModel
	}
	return answer{id: "chatcmpl-" + turnID, model: model, created: time.Now().Unix()}
}

func (a answer) whole(final *turnv1.Final, turnID string) completion {
	reason := finishReason(final.Outcome)
	return completion{
		ID: a.id, Object: "chat.completion", Created: a.created, Model: a.model,
		Choices: []choice{{Message: &message{Role: "assistant", Content: &final.Text}, FinishReason: &reason}},
		Usage:   usageOf(final.Usage), Hermes: outcomeOf(final, turnID),
	}
}

func outcomeOf(final *turnv1.Final, turnID string) *outcome {
	return &outcome{SessionID: final.SessionId, TurnID: turnID, Outcome: outcomes[final.Outcome], Error: final.Error}
}

func (a answer) chunk(choices ...choice) completion {
	if choices == nil {
		choices = []choice{}
	}
	return completion{ID: a.id, Object: "chat.completion.chunk", Created: a.created, Model: a.model, Choices: choices}
}
