package guard

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPaths(t *testing.T) {
	f := &Files{Home: "/nowhere/agent/.hermes", User: "/nowhere/user"}
	for _, row := range []struct {
		path        string
		read, write Verdict
	}{
		{"/nowhere/project/main.go", Allow, Allow},
		{"/nowhere/project/app.db", Allow, Allow},
		{"/nowhere/project/.env", Ask, Refuse},
		{"/nowhere/project/.env.production", Ask, Refuse},
		{"/nowhere/project/.env.example", Allow, Allow},
		{"/nowhere/project/.git/hooks/pre-commit", Allow, Ask},
		{"/nowhere/project/.git/config", Allow, Ask},
		{"/nowhere/project/.gitignore", Allow, Allow},
		{"/nowhere/project/../agent/.hermes/state.db", Refuse, Refuse},
		{"/nowhere/agent/.hermes/state.db", Refuse, Refuse},
		{"/nowhere/agent/.hermes/state.db-wal", Refuse, Refuse},
		{"/nowhere/agent/.hermes/kanban/boards/ops/kanban.db", Refuse, Refuse},
		{"/nowhere/agent/.hermes/.env", Ask, Refuse},
		{"/nowhere/agent/.hermes/auth.json", Ask, Refuse},
		{"/nowhere/agent/.hermes/config.yaml", Allow, Ask},
		{"/nowhere/agent/.hermes/plugins/weather", Allow, Ask},
		{"/nowhere/agent/.hermes/memories/MEMORY.md", Allow, Allow},
		{"/nowhere/user/.ssh/id_ed25519", Ask, Refuse},
		{"/nowhere/user/.ssh/my_own_key", Ask, Refuse},
		{"/nowhere/user/.ssh/id_ed25519.pub", Allow, Allow},
		{"/nowhere/user/.ssh/authorized_keys", Allow, Refuse},
		{"/nowhere/user/.ssh/config", Allow, Ask},
		{"/nowhere/user/.ssh/known_hosts", Allow, Allow},
		{"/nowhere/user/.aws/credentials", Ask, Refuse},
		{"/nowhere/user/.aws/config", Allow, Allow},
		{"/nowhere/user/.bashrc", Allow, Ask},
		{"/nowhere/project/.bashrc", Allow, Allow},
		{"/home/somebody/.profile", Allow, Ask},
		{"/nowhere/user/.config/systemd/user/x.service", Allow, Ask},
		{"/etc/hosts", Allow, Ask},
		{"/etc/shadow", Ask, Refuse},
		{"/etc/ssh/ssh_host_rsa_key", Ask, Refuse},
		{"/usr/local/bin/x", Allow, Ask},
		{"/var/spool/cron/root", Allow, Ask},
		{"/var/log/x", Allow, Allow},
		{"/dev/null", Allow, Allow},
		{"/dev/fd/3", Allow, Allow},
		{"/dev/shm/x", Allow, Allow},
		{"/dev/sda", Ask, Refuse},
		{"/dev/nvme0n1p2", Ask, Refuse},
		{"/dev/disk/by-id/x", Ask, Refuse},
		{"/dev/mem", Ask, Refuse},
		{"/dev/input/mice", Allow, Ask},
		{"/proc/sys/vm/drop_caches", Allow, Ask},
		{"/proc/1/environ", Ask, Ask},
		{"/proc/cpuinfo", Allow, Ask},
		{"/", Allow, Allow},
	} {
		if got := f.Reading(row.path); got.Verdict != row.read {
			t.Errorf("reading %s: %v (%s), want %v", row.path, got.Verdict, got.Reason, row.read)
		}
		if got := f.Writing(row.path); got.Verdict != row.write {
			t.Errorf("writing %s: %v (%s), want %v", row.path, got.Verdict, got.Reason, row.write)
		}
	}
}

func TestNoOtherNameLeadsToAGuardedFile(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "real")
	for _, dir := range []string{home, filepath.Join(home, "kanban/boards/ops"), filepath.Join(root, "work"), filepath.Join(root, "work/.ssh")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"real/state.db", "real/kanban/boards/ops/kanban.db", "work/.ssh/id_rsa"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(home, "home") // the configured home is itself a link
	link("../real/state.db", "work/notes.txt")
	link("../home", "work/dir")
	link("../real/new.db", "work/dangling") // a target that does not exist yet
	link(".ssh/id_rsa", "work/readme")
	link("loop", "work/loop")
	if err := os.Link(filepath.Join(home, "state.db"), filepath.Join(root, "work/hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(home, "kanban/boards/ops/kanban.db"), filepath.Join(root, "work/hard2")); err != nil {
		t.Fatal(err)
	}
	f := &Files{Home: filepath.Join(root, "home"), User: filepath.Join(root, "work")}
	for _, row := range []struct {
		path        string
		read, write Verdict
	}{
		{"real/state.db", Refuse, Refuse},
		{"home/state.db", Refuse, Refuse},
		{"work/notes.txt", Refuse, Refuse},
		{"work/dir/state.db", Refuse, Refuse},
		{"work/dir/supervisor.db-wal", Refuse, Refuse},
		{"work/dangling", Refuse, Refuse},
		{"work/hard", Refuse, Refuse},
		{"work/hard2", Refuse, Refuse},
		{"real/.env", Ask, Refuse},
		{"real/config.yaml", Allow, Ask},
		{"work/dir/config.yaml", Allow, Ask},
		{"work/readme", Ask, Refuse},
		{"work/loop", Allow, Allow},
		{"work/other", Allow, Allow},
	} {
		p := filepath.Join(root, row.path)
		if got := f.Reading(p); got.Verdict != row.read {
			t.Errorf("reading %s: %v (%s), want %v", row.path, got.Verdict, got.Reason, row.read)
		}
		if got := f.Writing(p); got.Verdict != row.write {
			t.Errorf("writing %s: %v (%s), want %v", row.path, got.Verdict, got.Reason, row.write)
		}
	}
}
