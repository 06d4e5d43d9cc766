package agent

import (
	"fmt"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/agent/provider"
)

// advice says, for each class of failure, what happened and what the person can do about it. {endpoint}, {model}, {key},
// {env}, {config}, {said}, {tries} and {wait} are filled in.
var advice = map[provider.Class]string{
	provider.Auth: "The model provider at {endpoint} does not accept the key{said}. Check {key} in {env} " +
		"and run hermes-supervisor ctl reload, which reads it anew; then send your message again.",
	provider.Billing:    "The account at {endpoint} has no credit left{said}. Top it up there, or set another provider under model: in {config}.",
	provider.RateLimit:  "The model provider at {endpoint} takes no more requests for now{said}; I tried {tries}. {wait}",
	provider.Overloaded: "The model provider at {endpoint} is overloaded{said}; I tried {tries}. {wait}",
	provider.Server:     "The model provider at {endpoint} failed{said}; I tried {tries}. This is a fault there: send your message again later.",
	provider.Timeout:    "The model provider at {endpoint} did not answer in time{said}; I tried {tries}. Send your message again; if it stays so, see whether the server works at all.",
	provider.Connection: "I cannot reach the model provider at {endpoint}{said}; I tried {tries}. Check that the server runs and that model.base_url in {config} is right.",
	provider.CutStream:  "The model provider at {endpoint} broke off in the middle of its answers{said}; I tried {tries}. Send your message again.",
	provider.Malformed:  "What answers at {endpoint} does not speak the OpenAI protocol as it should{said}; I tried {tries}. Check model.base_url in {config}; it ends with /v1 as a rule.",
	provider.Empty:      "The model {model} gave no answer{said}; I tried {tries}. Say it in other words, or set another model under model: in {config}.",
	provider.ContextOverflow: "Your message and what tools returned for it are too long for the model {model}{said}, also without all that went before. " +
		"Ask for less at once, or set a model with a larger context under model: in {config}.",
	provider.ModelNotFound: "The model provider at {endpoint} does not know the model {model}{said}. Set model.default in {config} to one that it has.",
	provider.WrongURL:      "There is no OpenAI-compatible interface at {endpoint}{said}. Check model.base_url in {config}; it ends with /v1 as a rule.",
	provider.Refused:       "The provider's content filter stopped this{said}. Say it in other words.",
	provider.BadRequest:    "The model provider at {endpoint} does not accept the request{said}. Repeating does not help; another model under model: in {config} may.",
	provider.TooLarge:      "The answer of the model was too large{said}. Ask for less at once.",
	provider.Unknown:       "The model provider at {endpoint} failed{said}; I tried {tries}. Send your message again.",
}

// failureText tells a person of a provider call that failed for good.
func (t *turn) failureText(e *provider.Error) string {
	said := ""
	switch {
	case e.Status != 0 && e.Message != "":
		said = fmt.Sprintf(" (%d: %s)", e.Status, e.Message)
	case e.Status != 0:
		said = fmt.Sprintf(" (%d)", e.Status)
	case e.Message != "":
		said = " (" + e.Message + ")"
	}
	wait := "Send your message again in a minute or two."
	if e.RetryAfter > 0 {
		wait = fmt.Sprintf("It asks to wait %s: send your message again after that.", e.RetryAfter.Round(time.Second))
	}
	text, ok := advice[e.Class]
	if !ok {
		text = advice[provider.Unknown]
	}
	return t.fill(text, "{said}", said, "{wait}", wait, "{tries}", times(t.tries))
}

// unusableText tells a person that the provider's configuration is wrong.
func (t *turn) unusableText() string {
	return t.fill("I have no model to answer with: {why}. Mend it in {config} and restart hermes-supervisor.",
		"{why}", t.agent.unusable.Error())
}

func (t *turn) fill(text string, pairs ...string) string {
	cfg := t.agent.cfg
	home := cfg.Home
	if home == "" {
		home = "~/.hermes"
	}
	key := cfg.APIKeyName
	if key == "" {
		key = "the provider's key (none is set; for example OPENAI_API_KEY)"
	}
	endpoint := "the configured address"
	if t.agent.provider != nil && t.agent.provider.Endpoint() != "" {
		endpoint = t.agent.provider.Endpoint()
	}
	model := t.model
	if model == "" {
		model = "(none set)"
	}
	pairs = append(pairs, "{endpoint}", endpoint, "{model}", model, "{key}", key, "{env}", home+"/.env", "{config}", home+"/config.yaml")
	return "⚠️ " + strings.NewReplacer(pairs...).Replace(text)
}

func times(n int) string {
	switch n {
	case 0, 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
