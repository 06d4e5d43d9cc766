package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// A plugin's folder is on the disk of the home. One that fills it stops all that has to be stored; it can be removed all the same,
// with what it stored, and then everything goes on where it was.
func TestAPluginThatFillsTheDiskIsRemovedWithWhatItStored(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a system on a disk of its own")
	}
	c := &court{system: newSystem(t, courtConfig)}
	c.chat = &socketChat{sys: c.system, id: "court"}
	c.ownDisk(96)
	c.start()
	for _, name := range []string{"hostile", "neighbour"} {
		c.must("plugins", "add", "--yes", buildHostile(t, name))
	}
	c.ask("call: neighbour_fine {}")
	before := c.worker("plugin-neighbour").Pid
	answered := make(chan string, 1)
	go func() {
		said, err := c.chat.ask(t.Context(), "m-full", `call: fill_disk {"n": 4000}`)
		if err != nil {
			said = err.Error()
		}
		answered <- said
	}()
	c.eventually(limit, "the disk is full", func() error {
		st, err := c.status()
		if err != nil {
			return err
		}
		for _, s := range st.Stores {
			if s.Condition == "disk_full" {
				return nil
			}
		}
		return fmt.Errorf("stores: %v", st.Stores)
	})
	if _, said, code := c.command(nil, "plugins", "remove", "hostile"); code == 0 || !strings.Contains(said, "no space left on device") || !strings.Contains(said, "plugins remove hostile --data") {
		t.Errorf("without its data: exit %d: %s", code, said)
	}
	if w := c.worker("plugin-hostile"); w.State != "idle" {
		t.Errorf("it could not be removed, and is %s: %s", w.State, w.Detail)
	}
	c.must("plugins", "remove", "hostile", "--data")
	if said := <-answered; !strings.Contains(said, "no space left on device") {
		t.Errorf("the answer: %s", said)
	}
	if said := c.ask("call: neighbour_fine {}"); !strings.Contains(said, "all is well") {
		t.Errorf("another plugin: %s", said)
	}
	if now := c.worker("plugin-neighbour").Pid; now != before {
		t.Errorf("another plugin was process %d and is %d", before, now)
	}
}
