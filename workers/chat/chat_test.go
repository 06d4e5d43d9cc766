package chat

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
)

func TestASessionIsCalledByItsTitleItsFirstWordsOrItsID(t *testing.T) {
	for want, s := range map[string]*hostv1.SessionInfo{
		"“Tea”":              {Id: "20260101_1", Title: "Tea", Preview: "how long?"},
		"“how long does it”": {Id: "20260101_1", Preview: "how long\n\tdoes  it"},
		"20260101_1":         {Id: "20260101_1"},
	} {
		if got := Name(s); got != want {
			t.Errorf("%v is called %s, want %s", s, got, want)
		}
	}
}

func TestALongTextIsQuotedInPart(t *testing.T) {
	if got := Quote(strings.Repeat("é", 80)); got != "“"+strings.Repeat("é", 80)+"”" {
		t.Errorf("80 letters are %s", got)
	}
	if got := Quote(strings.Repeat("é", 81)); got != "“"+strings.Repeat("é", 80)+"…”" {
		t.Errorf("81 letters are %s", got)
	}
}

func TestASessionOfOneMessageIsNotSaidToHaveMany(t *testing.T) {
	for n, want := range map[int64]string{0: "0 messages", 1: "1 message", 2: "2 messages"} {
		if got := Messages(&hostv1.SessionInfo{Messages: n}); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestASessionWithoutAModelHasTheConfiguredOne(t *testing.T) {
	if a, b := Model(&hostv1.SessionInfo{}), Model(&hostv1.SessionInfo{Model: "big"}); a != "as configured" || b != "big" {
		t.Errorf("%q, %q", a, b)
	}
}

func TestASessionIsFoundByItsNumberTitleOrTheBeginningOfItsID(t *testing.T) {
	list := []*hostv1.SessionInfo{
		{Id: "20260103_100000_aa", Title: "Tea talk"}, {Id: "20260102_090000_bb"}, {Id: "20260102_080000_cc", Title: "3"}, {Id: "9f"},
	}
	for name, want := range map[string]string{
		"1":                  "20260103_100000_aa",
		"4":                  "9f",
		"3":                  "20260102_080000_cc",
		"tea TALK":           "20260103_100000_aa",
		"20260102_090000_bb": "20260102_090000_bb",
		"20260103":           "20260103_100000_aa",
		"9":                  "", // a number beyond the list is no beginning of an id
		"2":                  "20260102_090000_bb",
		"10":                 "",
		"0":                  "",
		"-1":                 "",
		"20260102":           "", // it can be either of two
		"tea":                "",
		"soup":               "",
	} {
		if got := Find(list, name).GetId(); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	if got := Find(list[:1], "2"); got != nil {
		t.Errorf("the second of one is %v", got)
	}
}

func TestANumberBeyondWhatIsListedIsNoSession(t *testing.T) {
	var list []*hostv1.SessionInfo
	for i := range ListedSessions + 5 {
		list = append(list, &hostv1.SessionInfo{Id: fmt.Sprintf("s%02d", i+1)})
	}
	if got := Find(list, "10").GetId(); got != "s10" {
		t.Errorf("10 is %q", got)
	}
	if got := Find(list, "11").GetId(); got != "" {
		t.Errorf("11, which is not shown, is %q", got)
	}
}

func TestHowManyMessagesAreTakenBack(t *testing.T) {
	for args, want := range map[string]int{"": 1, "1": 1, "20": 20, "21": 0, "0": 0, "-1": 0, "two": 0, "1 2": 0} {
		n, ok := Count(args)
		if ok != (want > 0) || ok && n != want {
			t.Errorf("%q: %d, %v", args, n, ok)
		}
	}
}

func TestAnErrorIsToldInItsOwnWords(t *testing.T) {
	remote := func(err error) error { return ipc.FromStatus("Sessions/SetTitle", ipc.ToStatus(err)) }
	for want, err := range map[string]error{
		"session 1 has it, choose another": fmt.Errorf(`title "a": %w: session 1 has it, choose another`, ipc.ErrExists),
		"at most 100 are kept":             remote(fmt.Errorf("title: %w: at most 100 are kept", ipc.ErrInvalid)),
		"it has 120 characters":            errors.New("name session of chat 1: title: invalid: it has 120 characters"), // the store's kind
		"session 1: not found":             fmt.Errorf("session 1: %w", ipc.ErrNotFound),
		"broken pipe":                      errors.New("broken pipe"),
	} {
		if got := Words(err); got != want {
			t.Errorf("%v is told as %q, want %q", err, got, want)
		}
	}
}

func TestARefusalIsNotAlwaysARunningTurn(t *testing.T) {
	if err := fmt.Errorf("undo: session 1: a turn is open: wait for its end: %w", ipc.ErrRefused); !StillRunning(err) {
		t.Errorf("%v is no running turn", err)
	}
	for _, err := range []error{
		fmt.Errorf("undo: the store is read-only: %w", ipc.ErrRefused), fmt.Errorf("a turn is open: %w", ipc.ErrGone), errors.New("a turn is open"), nil,
	} {
		if StillRunning(err) {
			t.Errorf("%v is called a running turn", err)
		}
	}
}
