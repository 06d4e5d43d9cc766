package provider

import (
	"net/http"
	"strings"
)

// statusRules are tried in order; the first whose status and text both fit gives the class. A zero status fits any,
// no words fit any text. Words are searched in the lower-cased message.
var statusRules = []struct {
	from, to int
	words    []string
	class    Class
}{
	// Before the texts about length: "too many tokens" of a 429 is about a minute, not about a conversation.
	{http.StatusTooManyRequests, 0, []string{"insufficient_quota", "exceeded your current quota", "check your plan and billing"}, Billing},
	{http.StatusTooManyRequests, 0, []string{"overloaded", "at capacity"}, Overloaded},
	{http.StatusTooManyRequests, 0, nil, RateLimit},
	{0, 0, contextWords, ContextOverflow},
	{http.StatusRequestEntityTooLarge, 0, nil, ContextOverflow},
	{http.StatusUnauthorized, 0, nil, Auth},
	{http.StatusPaymentRequired, 0, []string{"try again", "usage limit"}, RateLimit},
	{http.StatusPaymentRequired, 0, nil, Billing},
	{http.StatusBadRequest, http.StatusNotFound, creditWords, Billing},
	{http.StatusForbidden, 0, policyWords, Refused},
	{http.StatusForbidden, 0, nil, Auth},
	{http.StatusBadRequest, http.StatusUnprocessableEntity, modelWords, ModelNotFound},
	{http.StatusNotFound, http.StatusMethodNotAllowed, nil, WrongURL},
	{http.StatusBadRequest, http.StatusUnprocessableEntity, policyWords, Refused},
	{http.StatusRequestTimeout, 0, nil, Timeout},
	{http.StatusServiceUnavailable, 0, nil, Overloaded},
	{529, 0, nil, Overloaded},
	{http.StatusGatewayTimeout, 0, nil, Timeout},
	{524, 0, nil, Timeout},
	{500, 599, nil, Server},
	{400, 499, nil, BadRequest},
	{0, 0, []string{"overloaded", "at capacity"}, Overloaded},
	{0, 0, []string{"rate limit", "rate_limit", "too many requests"}, RateLimit},
	{0, 0, policyWords, Refused},
	{0, 0, []string{"internal server error", "server_error", "internal error"}, Server},
}

var (
	contextWords = []string{
		"context length", "context_length", "context window", "maximum context", "context size", "prompt is too long",
		"too many tokens", "input is too long", "reduce the length of the messages",
	}
	creditWords = []string{"insufficient credit", "insufficient balance", "out of credits", "billing", "payment required"}
	policyWords = []string{"content policy", "content_policy", "content_filter", "content management policy", "safety system", "usage policies"}
	modelWords  = []string{
		"model not found", "model_not_found", "no such model", "unknown model", "is not a valid model", "invalid model",
		"model does not exist", "try pulling it first",
	}
)

// Classify finds the class of an answer by its HTTP status (0 if it came inside a stream) and the provider's words.
func Classify(status int, message string) Class {
	text := strings.ToLower(message)
	for _, r := range statusRules {
		if r.from != 0 {
			if to := max(r.from, r.to); status < r.from || status > to {
				continue
			}
		}
		if r.words == nil || containsAny(text, r.words) {
			return r.class
		}
		// "The model `x` does not exist": the name stands between the words.
		if r.class == ModelNotFound && strings.Contains(text, "model") && containsAny(text, []string{"not found", "does not exist"}) {
			return r.class
		}
	}
	return Unknown
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}
