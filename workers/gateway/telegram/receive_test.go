package telegram

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	hostv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/host/v1"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

const (
	group = -100200300
	forum = -100200301
	topic = 77
)

func TestWhoMayUseTheBot(t *testing.T) {
	for _, c := range []struct {
		name  string
		users list
		set   gateway.Settings
		chat  int64
		taken bool
		told  string // why not
	}{
		{name: "nobody is allowed by default", told: "CODE0001"},
		{name: "by id from the environment", users: list{"1001"}, taken: true},
		{name: "by id from the settings", set: gateway.Settings{"allowed_users": []any{1001}}, taken: true},
		{name: "by name", set: gateway.Settings{"allowed_users": "@Ann_A, 5"}, taken: true},
		{name: "everybody", users: list{"*"}, taken: true},
		{name: "somebody else", users: list{"1002"}, told: "CODE0001"},
		{name: "somebody else is told the id", users: list{"1002"}, set: gateway.Settings{"strangers": "tell"}, told: "1001"},
		{name: "a stranger who is not told", set: gateway.Settings{"strangers": "ignore"}},
		{name: "a group that is allowed", set: gateway.Settings{"allowed_chats": []any{group}, "require_mention": false}, chat: group, taken: true},
		{name: "a group that is not", set: gateway.Settings{"require_mention": false}, chat: group},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.users = c.users
				for k, v := range c.set {
					r.set[k] = v
				}
				r.bot.Supergroup(group, "Team")
				r.start()
				for range 3 {
					r.bot.Say(bottest.Post{From: ann, Chat: c.chat, Text: "hello", Extra: map[string]any{"from": map[string]any{"id": ann, "first_name": "Ann", "username": "ann_a"}}})
				}
				r.pass(time.Second)
				if got := len(r.host.messages()) > 0; got != c.taken {
					t.Errorf("taken: %v", got)
				}
				told := r.bot.Texts(ann)
				if (c.told != "") != (len(told) == 1 && strings.Contains(told[0], c.told)) || len(told) > 1 {
					t.Errorf("the stranger was told %q", told)
				}
				if got := r.bot.Texts(group); len(got) > 0 {
					t.Errorf("the group was told %q", got)
				}
			})
		})
	}
}

func TestWhatIsMeantForTheBotInAGroup(t *testing.T) {
	me := "@" + bottest.BotName
	for _, c := range []struct {
		name string
		post bottest.Post
		set  gateway.Settings
		want string // text that is handed over, "" for none
	}{
		{name: "talk among people", post: bottest.Post{Text: "lunch?"}},
		{name: "named", post: bottest.Post{Text: me + " what time is it?"}, want: "what time is it?"},
		{name: "named in the middle", post: bottest.Post{Text: "please " + strings.ToUpper(me) + ", help"}, want: "please , help"},
		{name: "another bot named", post: bottest.Post{Text: "@" + bottest.BotName + "2 hello"}},
		{name: "only named", post: bottest.Post{Text: me}, want: "(The user wrote nothing but your name.)"},
		{name: "an answer to the bot", post: bottest.Post{Text: "and tomorrow?", ReplyTo: -1}, want: "[In answer to your message: \"It is ten.\"]\nand tomorrow?"},
		{name: "an answer to somebody else", post: bottest.Post{Text: "and tomorrow?", ReplyTo: -2}},
		{name: "without need to be named", post: bottest.Post{Text: "lunch?"}, set: gateway.Settings{"require_mention": false}, want: "lunch?"},
		{name: "in a free chat", post: bottest.Post{Text: "lunch?"}, set: gateway.Settings{"free_chats": []any{group}}, want: "lunch?"},
		{name: "a file with a caption that names it", post: bottest.Post{Text: me + " read this", File: bottest.Upload{Name: "a.pdf", Data: []byte("x")}}, want: "read this"},
		{name: "another bot", post: bottest.Post{Text: me + " hi", Bot: true}},
		{name: "a command for another bot", post: bottest.Post{Text: "/status@other_bot"}},
		{name: "a command that no bot named", post: bottest.Post{Text: "/weather"}},
		{name: "a new member", post: bottest.Post{Extra: map[string]any{"new_chat_members": []any{map[string]any{"id": 5, "first_name": "Eve"}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				for k, v := range c.set {
					r.set[k] = v
				}
				r.users = list{"1001"}
				r.bot.Supergroup(group, "Team")
				r.start()
				r.deliver(gateway.Delivery{ID: 1, To: to(group), Text: "It is ten."})
				ours := r.bot.Messages(group)[0].ID
				theirs := r.bot.Say(bottest.Post{From: bob, Chat: group, Text: "nobody asked the bot"})
				c.post.From, c.post.Chat = ann, group
				switch c.post.ReplyTo {
				case -1:
					c.post.ReplyTo = ours
				case -2:
					c.post.ReplyTo = theirs
				}
				r.bot.Say(c.post)
				r.pass(time.Second)
				if c.want == "" {
					r.wantTaken()
				} else {
					r.wantTaken(c.want)
				}
			})
		})
	}
}

func TestPlacesAndSessions(t *testing.T) {
	for _, c := range []struct {
		name string
		post bottest.Post
		set  gateway.Settings
		want gateway.Message
	}{
		{"private", bottest.Post{From: ann, Text: "hi"}, nil,
			gateway.Message{ChatID: "1001", ChatType: "dm", UserID: "1001", UserName: "Ann", Text: "hi", SessionKey: "agent:main:telegram:dm:1001"}},
		{"each in a group has a conversation", bottest.Post{From: ann, Chat: group, Text: "hi"}, nil,
			gateway.Message{ChatID: "-100200300", ChatType: "group", UserID: "1001", UserName: "Ann", Text: "hi", SessionKey: "agent:main:telegram:group:-100200300:1001"}},
		{"a group shares one", bottest.Post{From: ann, Chat: group, Text: "hi"}, gateway.Settings{"groups_per_user": false},
			gateway.Message{ChatID: "-100200300", ChatType: "group", UserID: "1001", UserName: "Ann", Text: "[Ann] hi", SessionKey: "agent:main:telegram:group:-100200300"}},
		{"a topic shares one", bottest.Post{From: ann, Chat: forum, Thread: topic, Text: "hi"}, nil,
			gateway.Message{ChatID: "-100200301", ThreadID: "77", ChatType: "group", UserID: "1001", UserName: "Ann", Text: "[Ann] hi", SessionKey: "agent:main:telegram:group:-100200301:77"}},
		{"each in a topic has one", bottest.Post{From: ann, Chat: forum, Thread: topic, Text: "hi"}, gateway.Settings{"topics_per_user": true},
			gateway.Message{ChatID: "-100200301", ThreadID: "77", ChatType: "group", UserID: "1001", UserName: "Ann", Text: "hi", SessionKey: "agent:main:telegram:group:-100200301:77:1001"}},
		{"a chain of replies is no topic", bottest.Post{From: ann, Chat: group, Text: "hi", Extra: map[string]any{"message_thread_id": 5}}, nil,
			gateway.Message{ChatID: "-100200300", ChatType: "group", UserID: "1001", UserName: "Ann", Text: "hi", SessionKey: "agent:main:telegram:group:-100200300:1001"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.set["require_mention"] = false
				for k, v := range c.set {
					r.set[k] = v
				}
				r.bot.Supergroup(group, "Team")
				r.bot.Supergroup(forum, "Forum", topic)
				r.start()
				id := r.bot.Say(c.post)
				r.pass(time.Second)
				c.want.ID, c.want.Busy = fmt.Sprint(id), hostv1.Busy_BUSY_INTERRUPT
				got := r.host.messages()
				if len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", c.want) {
					t.Errorf("handed over\n%+v, want\n%+v", got, c.want)
				}
			})
		})
	}
}

// The bot started by asking Telegram to forget what waited.
func TestMessagesFromWhileTheBotWasAwayAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 6 {
			r.bot.Say(bottest.Post{From: ann, Text: fmt.Sprint("waiting ", i)})
		}
		r.start()
		r.pass(time.Second)
		r.wantTaken("waiting 0", "waiting 1", "waiting 2", "waiting 3", "waiting 4", "waiting 5")
	})
}

// With clocks that disagree by hours: age is by the server's.
func TestMessagesThatAreTooOldAreReportedNotAnswered(t *testing.T) {
	for _, skew := range []time.Duration{0, 5 * time.Hour, -5 * time.Hour} {
		bubble(t, func(t *testing.T, r *rig) {
			r.bot.Skew(skew)
			r.set["max_age"] = "1h"
			r.bot.Say(bottest.Post{From: ann, Text: "old", Age: 3 * time.Hour})
			r.bot.Say(bottest.Post{From: ann, Text: "old too", Age: 2 * time.Hour})
			r.bot.Say(bottest.Post{From: ann, Text: "young", Age: 30 * time.Minute})
			r.start()
			r.pass(time.Second)
			r.wantTaken("young")
			if got := r.bot.Texts(ann); len(got) != 1 || !strings.Contains(got[0], "2 of your messages") {
				t.Errorf("skew %s: the person was told %q", skew, got)
			}
			if !strings.Contains(r.host.timeline(), "2 messages are older") {
				t.Errorf("skew %s: the timeline tells %q", skew, r.host.timeline())
			}
		})
	}
}

func TestAnEditedMessageIsAnotherOneAndSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		id := r.bot.Say(bottest.Post{From: ann, Text: "what is 2+3?"})
		r.pass(time.Second)
		r.bot.Edit(ann, id, "what is 2+4?")
		r.pass(time.Second)
		r.wantTaken("what is 2+3?", "[An earlier message was edited. It now reads:]\nwhat is 2+4?")
		if got := r.host.messages(); got[0].ID == got[1].ID {
			t.Error("both have one id: the edit would be taken for a repeat")
		}
	})
}

func TestFilesAreFetched(t *testing.T) {
	for _, c := range []struct {
		name string
		post bottest.Post
		kind string
		want string
	}{
		{"photo", bottest.Post{Text: "what is this?", Photo: []byte("a large picture")}, "image", "a large picture"},
		{"voice", bottest.Post{Voice: []byte("ogg")}, "voice", "ogg"},
		{"document", bottest.Post{File: bottest.Upload{Name: "../../etc/evil name.pdf", Data: []byte("%PDF")}}, "document", "%PDF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.start()
				c.post.From = ann
				r.bot.Say(c.post)
				r.pass(time.Second)
				got := r.host.messages()
				if len(got) != 1 || len(got[0].Files) != 1 {
					t.Fatalf("handed over %+v", got)
				}
				f := got[0].Files[0]
				data, err := os.ReadFile(f.Path)
				if err != nil || string(data) != c.want || f.Kind != c.kind || f.Size != int64(len(c.want)) {
					t.Errorf("file %+v holds %q (%v), want %q", f, data, err, c.want)
				}
				if !strings.HasPrefix(f.Path, r.files+"/") || strings.Count(f.Path, "/") != strings.Count(r.files, "/")+1 {
					t.Errorf("the file is at %s, outside of %s", f.Path, r.files)
				}
				if info, err := os.Stat(f.Path); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("others can read the file: %v %v", info, err)
				}
			})
		})
	}
}

func TestAFileThatCannotBeHadIsSaid(t *testing.T) {
	for _, c := range []struct {
		name  string
		post  bottest.Post
		fault *bottest.Fault
		want  string
	}{
		{"too big", bottest.Post{Text: "see", Voice: []byte("x"), Size: 30 << 20}, nil, "30 MB"},
		{"the server hangs", bottest.Post{Text: "see", Voice: []byte("x")}, &bottest.Fault{Kind: bottest.Hang, Method: "download"}, "no answer in time"},
		{"it is not there", bottest.Post{Text: "see", Voice: []byte("x")}, &bottest.Fault{Kind: bottest.Refuse, Status: 404, Method: "download"}, "404"},
		{"cut", bottest.Post{Text: "see", Voice: []byte("x")}, &bottest.Fault{Kind: bottest.CutBefore, Method: "download"}, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				if c.fault != nil {
					r.bot.Fail(*c.fault)
				}
				r.start()
				c.post.From = ann
				r.bot.Say(c.post)
				r.pass(2 * fileTimeout)
				got := r.host.texts()
				if len(got) != 1 || !strings.HasPrefix(got[0], "see\n[voice from the user") || !strings.Contains(got[0], c.want) {
					t.Errorf("handed over %q", got)
				}
			})
		})
	}
}

func TestAnAlbumIsOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		first := r.bot.Say(bottest.Post{From: ann, Text: "my holiday", Photo: []byte("one"), Group: "G"})
		r.pass(100 * time.Millisecond) // the rest comes in another poll
		r.bot.Say(bottest.Post{From: ann, Photo: []byte("two"), Group: "G"})
		last := r.bot.Say(bottest.Post{From: ann, Photo: []byte("three"), Group: "G"})
		r.pass(time.Second)
		r.bot.Say(bottest.Post{From: ann, Text: "nice?"})
		r.pass(time.Second)
		r.wantTaken("my holiday", "nice?")
		if m := r.host.messages()[0]; len(m.Files) != 3 || m.ID != fmt.Sprintf("%d-%d", first, last) {
			t.Errorf("the album is %+v", m)
		}
	})
}

// A single update that cannot be read must not keep the bot from all that come after it.
func TestAnUpdateOfAnUnknownKindCostsNoText(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		chat := map[string]any{"id": ann, "type": "private"}
		from := map[string]any{"id": ann, "first_name": "Ann"}
		r.bot.Push("message", map[string]any{"message_id": 1, "date": 1, "chat": chat, "from": from, "text": "with news", "forward_origin": map[string]any{"type": "from_the_future"}})
		r.bot.Push("message", map[string]any{"message_id": 2, "date": 1, "chat": chat, "from": from, "text": []any{"not", "a", "text"}})
		r.bot.Push("message", json.RawMessage(`null`))
		r.bot.Say(bottest.Post{From: ann, Text: "behind it"})
		r.pass(time.Second)
		r.wantTaken("with news", "behind it")
	})
}

func TestWhatIsNoTextIsDescribed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		for _, extra := range []map[string]any{
			{"sticker": map[string]any{"file_id": "s", "file_unique_id": "s", "type": "regular", "emoji": "😀", "width": 1, "height": 1}},
			{"location": map[string]any{"latitude": 52.5, "longitude": 13.4}},
			{"contact": map[string]any{"first_name": "Eve]", "phone_number": "+49"}},
			{"poll": map[string]any{"id": "1", "question": "When?", "options": []any{map[string]any{"text": "now"}, map[string]any{"text": "later"}}}},
			{"dice": map[string]any{"emoji": "🎲", "value": 4}},
		} {
			r.bot.Say(bottest.Post{From: ann, Extra: extra})
		}
		r.bot.Say(bottest.Post{From: ann, Text: "look", Extra: map[string]any{"forward_origin": map[string]any{"type": "hidden_user", "sender_user_name": "Eve [boss]", "date": 1}}})
		r.pass(time.Second)
		r.wantTaken("[sticker 😀]", "[location: 52.5, 13.4]", "[contact: Eve_ , +49]", "[poll: When? (now / later)]", "[dice 🎲: 4]",
			"[Forwarded from Eve _boss_]\nlook")
	})
}

// Two bots that would talk to each other for ever.
func TestMessagesOfBotsStartNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.bot.Say(bottest.Post{From: ann, Text: "I am a bot", Bot: true})
		r.bot.Say(bottest.Post{From: ann, Text: "sent through the bot", Extra: map[string]any{"via_bot": map[string]any{"id": bottest.BotID, "is_bot": true, "first_name": "H"}}})
		r.bot.Say(bottest.Post{From: ann, Text: "our own", Extra: map[string]any{"from": map[string]any{"id": bottest.BotID, "is_bot": true, "first_name": "H"}}})
		r.pass(time.Second)
		r.wantTaken()
	})
}

// The supervisor knows what was handed over; the adapter hands over whatever comes.
func TestARedeliveredMessageIsHandedOverAgainAndIsTheSameOne(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		id := r.bot.Say(bottest.Post{From: ann, Text: "once"})
		r.pass(time.Second)
		r.bot.Repeat(ann, id)
		r.pass(time.Second)
		r.stop()
		r.bot.Repeat(ann, id)
		r.start()
		r.pass(time.Minute)
		r.wantTaken("once")
	})
}

func TestACrashBetweenAcceptAndOffsetDoublesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start()
		r.pass(time.Second)
		// From now on the offset cannot be confirmed: polls have no effect any more.
		lost := r.bot.Fail(bottest.Fault{Kind: bottest.CutBefore, Method: "getUpdates"})
		r.bot.Say(bottest.Post{From: ann, Text: "a message"})
		r.bot.Say(bottest.Post{From: ann, Text: "/whoami"})
		r.pass(time.Minute)
		r.wantTaken("a message")
		if n := r.bot.Waiting(); n != 2 {
			t.Fatalf("%d updates are unconfirmed, so nothing is tested", n)
		}
		r.stop()
		r.bot.Mend(lost)
		r.start()
		r.pass(time.Minute)
		r.wantTaken("a message")
		if got := r.bot.Texts(ann); len(got) != 1 {
			t.Errorf("the command was answered %d times: %q", len(got), got)
		}
	})
}

func TestAMessageThatIsRefusedIsSaidAndHoldsUpNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
	}{
		{"too large", fmt.Errorf("accept: %w", gateway.ErrTooLarge)},
		{"invalid", fmt.Errorf("accept: %w", ipc.ErrInvalid)},
		{"for a reason that nobody foresaw", fmt.Errorf("the store has a hole")},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.host.refuse = func(m gateway.Message) error {
					if m.Text == "poison" {
						return c.err
					}
					return nil
				}
				r.start()
				r.bot.Say(bottest.Post{From: ann, Text: "poison"})
				r.bot.Say(bottest.Post{From: ann, Text: "after it"})
				r.pass(10 * time.Minute)
				r.wantTaken("after it")
				if got := r.bot.Texts(ann); len(got) != 1 || !strings.Contains(got[0], c.err.Error()) {
					t.Errorf("the person was told %q", got)
				}
				if !strings.Contains(r.host.timeline(), "adapter_message_refused") {
					t.Error("the timeline does not tell")
				}
			})
		})
	}
}

// Answers and identities of one chat never show up in another.
func TestAThousandInterleavedMessagesKeepTheirChats(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set["messages_per_second"] = 1000
		for c := range 10 {
			r.bot.Private(int64(2000+c), fmt.Sprint("Person ", c))
		}
		r.start()
		for i := range 1000 {
			chat := int64(2000 + i%10)
			r.bot.Say(bottest.Post{From: chat, Text: fmt.Sprintf("%d of %d", i, chat)})
		}
		r.pass(time.Minute)
		last := map[string]int{}
		for _, m := range r.host.messages() {
			var n, chat int
			if _, err := fmt.Sscanf(m.Text, "%d of %d", &n, &chat); err != nil {
				t.Fatal(err)
			}
			id := fmt.Sprint(chat)
			if m.ChatID != id || m.UserID != id || m.SessionKey != "agent:main:telegram:dm:"+id || m.UserName != fmt.Sprint("Person ", chat-2000) {
				t.Fatalf("message %+v is not chat %s", m, id)
			}
			if seen, ok := last[id]; ok && n <= seen {
				t.Fatalf("chat %s: message %d came after %d", id, n, seen)
			}
			last[id] = n
		}
		if n := len(r.host.messages()); n != 1000 {
			t.Errorf("%d messages were handed over", n)
		}
	})
}

// What cannot be stored before a person has done something waits, and its chat knows that.
func TestAMessageThatCannotBeStoredNowIsSaidOnceAndWaits(t *testing.T) {
	for _, c := range []struct {
		err  error
		says string
	}{
		{fmt.Errorf("accept: store is read-only: %w", ipc.ErrRefused), "takes no writes"},
		{fmt.Errorf("accept: %w", ipc.ErrFull), "the disk is full"},
		{fmt.Errorf("accept: %w", ipc.ErrBusy), ""}, // ends by itself
	} {
		bubble(t, func(t *testing.T, r *rig) {
			r.host.fail(c.err)
			r.start()
			r.bot.Say(bottest.Post{From: ann, Text: "hello"})
			r.bot.Say(bottest.Post{From: ann, Text: "are you there?"})
			r.pass(10 * time.Minute)
			told := r.bot.Texts(ann)
			if c.says == "" && len(told) > 0 || c.says != "" && (len(told) != 1 || !strings.Contains(told[0], c.says)) {
				t.Errorf("%v: told %q", c.err, told)
			}
			r.host.fail(nil)
			r.pass(time.Minute)
			r.wantTaken("hello", "are you there?")
		})
	}
}
