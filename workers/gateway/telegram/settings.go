package telegram

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/proxy"
)

// settings are the keys of adapters.telegram. Lists may be written as one text with commas.
type settings struct {
	BaseURL string `json:"base_url"` // of the Bot API server; default https://api.telegram.org

	AllowedUsers list   `json:"allowed_users"` // ids or @names of people who may use the bot; "*" allows all
	AllowedChats list   `json:"allowed_chats"` // ids of groups in which everybody may use it
	Strangers    string `json:"strangers"`     // in a private chat: pair (default) gives a code, tell says that the bot is private, ignore

	RequireMention bool             `json:"require_mention"` // in groups only what names or answers the bot; default true
	FreeChats      list             `json:"free_chats"`      // ids of groups where it is not required
	GroupsPerUser  bool             `json:"groups_per_user"` // a conversation for each person in a group; default true
	TopicsPerUser  bool             `json:"topics_per_user"` // also within a topic; default false
	HomeChat       string           `json:"home_chat"`       // id of the chat that is told of trouble
	MaxAge         gateway.Duration `json:"max_age"`         // of a message at start; older ones are reported, not answered; 0: any

	Busy       string `json:"busy"`        // what a message does to a running turn: interrupt (default), queue, steer
	BusyNotice bool   `json:"busy_notice"` // say so, once in 30 s; default true
	Confirm    bool   `json:"confirm"`     // ask before a command that takes something away; default true

	Reply        string           `json:"reply"`         // answers show what they answer: first (default), groups (only there), off
	Streaming    bool             `json:"streaming"`     // show answers while they are made; default true
	EditInterval gateway.Duration `json:"edit_interval"` // between edits; default 0.8s, in groups at least 3s
	Menu         bool             `json:"menu"`          // set the bot's command menu; default true

	MessagesPerSecond float64          `json:"messages_per_second"` // over all chats; default 30, as Telegram allows
	PollTimeout       gateway.Duration `json:"poll_timeout"`        // of one long poll; default 50s
	RetryFirst        gateway.Duration `json:"retry_first"`         // after the first failed poll; default 1s, doubled with each
	RetryLongest      gateway.Duration `json:"retry_longest"`       // default 5m
	Proxy             string           `json:"proxy"`               // http, https, socks5 or socks5h URL; default from the environment
	LockDir           string           `json:"lock_dir"`            // of the lock on the token; default shared by all homes of the user
	KeepFiles         gateway.Duration `json:"keep_files"`          // files from chats are removed after; default 168h, 0: never
}

func defaults() settings {
	return settings{
		BaseURL: "https://api.telegram.org", Strangers: "pair", Busy: "interrupt", BusyNotice: true, Confirm: true, Reply: "first", RequireMention: true, GroupsPerUser: true,
		Streaming: true, EditInterval: gateway.Duration(800 * time.Millisecond), Menu: true,
		RetryFirst: gateway.Duration(time.Second), RetryLongest: gateway.Duration(5 * time.Minute),
		MessagesPerSecond: 30, PollTimeout: gateway.Duration(50 * time.Second), KeepFiles: gateway.Duration(7 * 24 * time.Hour),
	}
}

// readSettings checks what can be checked without the network.
func readSettings(s gateway.Settings) (settings, error) {
	c := defaults()
	if err := s.Decode(&c); err != nil {
		return c, err
	}
	if u, err := url.Parse(c.BaseURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return c, fmt.Errorf("settings: base_url: %q is not an http or https URL", c.BaseURL)
	}
	for _, choice := range []struct {
		key, value string
		of         []string
	}{
		{"strangers", c.Strangers, []string{"pair", "tell", "ignore"}},
		{"busy", c.Busy, []string{"interrupt", "queue", "steer"}},
		{"reply", c.Reply, []string{"first", "groups", "off"}},
	} {
		if !slices.Contains(choice.of, choice.value) {
			return c, fmt.Errorf("settings: %s: %q is none of %s", choice.key, choice.value, strings.Join(choice.of, ", "))
		}
	}
	if d := time.Duration(c.PollTimeout); d < time.Second || d > maxPoll {
		return c, fmt.Errorf("settings: poll_timeout: %s is not between 1s and %s", d, maxPoll)
	}
	if first, longest := time.Duration(c.RetryFirst), time.Duration(c.RetryLongest); first <= 0 || longest < first {
		return c, fmt.Errorf("settings: retry_first: %s is not between 0s and retry_longest (%s)", first, longest)
	}
	if c.MessagesPerSecond <= 0 {
		return c, fmt.Errorf("settings: messages_per_second: %v is not more than 0", c.MessagesPerSecond)
	}
	if d := time.Duration(c.EditInterval); d < 0 {
		return c, fmt.Errorf("settings: edit_interval: %s is less than 0", d)
	}
	if c.HomeChat != "" {
		if _, err := strconv.ParseInt(c.HomeChat, 10, 64); err != nil {
			return c, fmt.Errorf("settings: home_chat: %q is not the id of a chat", c.HomeChat)
		}
	}
	return c, nil
}

// maxPoll is the longest long poll: two of them and their grace fit into the time after which silence is deafness.
const maxPoll = 60 * time.Second

// A route is the way of requests to the Bot API server.
type route struct {
	proxy    func(*http.Request) (*url.URL, error) // as in http.Transport
	password string                                // of the proxy, to be kept out of every text
}

// route returns the way that the settings or the variables name.
func (c settings) route(vars proxy.Variables) (route, error) {
	u, err := c.proxyURL(vars)
	if err != nil {
		return route{}, err
	}
	via := http.ProxyURL(u)
	if u == nil {
		via = vars.ForRequest()
		base, err := url.Parse(c.BaseURL)
		if err != nil {
			return route{}, fmt.Errorf("settings: base_url: %w", err)
		}
		if u, err = via(&http.Request{URL: base}); err != nil {
			return route{}, err
		}
	}
	if u == nil {
		return route{proxy: via}, nil
	}
	password, _ := u.User.Password()
	return route{proxy: via, password: password}, nil
}

// proxyURL returns the proxy that is named for everything, nil if there is none.
func (c settings) proxyURL(vars proxy.Variables) (*url.URL, error) {
	from, raw := "settings: proxy", c.Proxy
	if raw == "" {
		raw, from = vars.First("TELEGRAM_PROXY")
	}
	if raw == "" && !c.local() {
		raw, from = vars.First("ALL_PROXY", "all_proxy")
	}
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%s: it is not a URL such as socks5://host:1080", from) // it may hold a password
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return u, nil
	}
	return nil, fmt.Errorf("%s: scheme %q is none of http, https, socks5, socks5h", from, u.Scheme)
}

// local reports whether the Bot API server runs on this machine, which no proxy leads to.
func (c settings) local() bool {
	u, err := url.Parse(c.BaseURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// list is a list of texts; numbers and one text with commas are taken too.
type list []string

func (l *list) UnmarshalJSON(raw []byte) error {
	var one any
	if err := json.Unmarshal(raw, &one); err != nil {
		return err
	}
	*l = nil
	var add func(v any) error
	add = func(v any) error {
		switch v := v.(type) {
		case nil:
		case string:
			*l = append(*l, splitList(v)...)
		case float64:
			*l = append(*l, strconv.FormatInt(int64(v), 10))
		case []any:
			for _, item := range v {
				if err := add(item); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("%s is not a list of ids", raw)
		}
		return nil
	}
	return add(one)
}

func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}
