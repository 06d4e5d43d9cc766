package telegram

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/telegram/bottest"
)

// BenchmarkMessages takes 1,200 messages of 300 chats that come at once and answers each, over real sockets. Four
// messages a chat are what Telegram lets through without a pause, so what is measured is our own work.
func BenchmarkMessages(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		bot, host := bottest.New(), newSupervisor()
		url := bot.Listen()
		const chats, each = 300, 4
		for c := range int64(chats) {
			bot.Private(5000+c, "P")
		}
		for range each {
			for c := range int64(chats) {
				bot.Say(bottest.Post{From: 5000 + c, Text: "hello"})
			}
		}
		a := openBench(b, url, host)
		ctx, cancel := context.WithCancel(b.Context())
		var running sync.WaitGroup
		b.StartTimer()
		begin := time.Now()
		running.Go(func() { _ = a.Run(ctx) })
		for len(host.messages()) < chats*each {
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(chats*each/time.Since(begin).Seconds(), "accepted/s")
		begin = time.Now()
		answerAll(ctx, a, host)
		b.ReportMetric(chats*each/time.Since(begin).Seconds(), "answered/s")
		if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
			b.ReportMetric(float64(len(fds)), "fds")
		}
		b.StopTimer()
		cancel()
		running.Wait()
		a.Close()
		bot.Close()
		b.StartTimer()
	}
}

func openBench(b *testing.B, url string, host *supervisor) *Adapter {
	b.Helper()
	setup := gateway.Setup{
		Platform: Platform, Dir: b.TempDir(), Log: hclog.NewNullLogger(),
		Settings: gateway.Settings{"base_url": url, "lock_dir": b.TempDir(), "messages_per_second": 1e6},
	}
	a, err := open(b.Context(), setup, parts{host: host, token: bottest.Token, users: list{"*"}})
	if err != nil {
		b.Fatal(err)
	}
	return a
}

// answerAll delivers an answer to each message, eight chats at a time as the supervisor does.
func answerAll(ctx context.Context, a *Adapter, host *supervisor) {
	byChat := map[string][]gateway.Message{}
	for _, m := range host.messages() {
		byChat[m.ChatID] = append(byChat[m.ChatID], m)
	}
	places := make(chan struct{}, 8)
	var all sync.WaitGroup
	id := int64(0)
	for _, list := range byChat {
		id += 1000
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			for n, m := range list {
				d := gateway.Delivery{ID: id + int64(n), To: gateway.To{ChatID: m.ChatID}, Text: "**answer**", TurnID: fmt.Sprint(m.ChatID, n)}
				for d.Attempt = 1; ; d.Attempt++ {
					out := a.Deliver(ctx, d)
					if out.State == gateway.StateSent {
						break
					}
					d.MessageIDs = out.MessageIDs
				}
			}
		})
	}
	all.Wait()
}
