package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/hermes-supervisor/hermes-supervisor/ipc"
	controlv1 "github.com/hermes-supervisor/hermes-supervisor/ipc/proto/hermes/control/v1"
)

// A peer is a supervisor that can be measured.
type peer struct {
	name    string
	missing string // why it cannot be
	// command makes its configuration in dir and returns what starts it in the foreground. Tuned has the least delays that it
	// allows, else it is as its makers ship it.
	command func(dir string, names []string, tuned bool) (*exec.Cmd, error)
	alone   bool          // one process, whatever is below it
	settle  time.Duration // until it is idle
	fresh   bool          // each kill is that of a new supervisor
	spare   bool
	// serves waits until a worker other than the one with pid old serves, and says since when; nil: it cannot be told.
	serves func(dir, name string, old int) (at time.Time, pid int, err error)
	tidy   func(dir string) // removes what is not below dir, nil: nothing is
	// spareOf returns the process that waits to take over, nil or 0: none.
	spareOf func(dir string) int
}

// write makes a file with all folders above it.
func write(path, text string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), mode)
}

// installed says why a program cannot be used, nothing if it can.
func installed(program, pack string) string {
	if _, err := exec.LookPath(program); err != nil {
		return "not installed (" + pack + ")"
	}
	return ""
}

// peers are all that are known, the floor first.
func peers(bin, program string) []peer {
	self, _ := os.Executable()
	list := []peer{
		{name: "floor", alone: true, serves: readyFile, command: func(dir string, names []string, _ bool) (*exec.Cmd, error) {
			return exec.Command(self, append([]string{"floor", program, dir}, names...)...), nil
		}},
		{name: "runit", missing: installed("runsvdir", "apt install runit"), command: func(dir string, names []string, _ bool) (*exec.Cmd, error) {
			return exec.Command("runsvdir", filepath.Join(dir, "sv")), services(dir, program, names, false)
		}},
		{name: "s6", missing: installed("s6-svscan", "apt install s6"), command: func(dir string, names []string, _ bool) (*exec.Cmd, error) {
			return exec.Command("s6-svscan", filepath.Join(dir, "sv")), services(dir, program, names, true)
		}},
		{name: "supervisord", missing: installed("supervisord", "apt install supervisor"), command: func(dir string, names []string, tuned bool) (*exec.Cmd, error) {
			return exec.Command("supervisord", "-n", "-c", filepath.Join(dir, "supervisord.conf")), supervisordConfig(dir, program, names, tuned)
		}},
		{name: "pm2", missing: installed("pm2", "npm install -g pm2"), command: func(dir string, names []string, tuned bool) (*exec.Cmd, error) {
			cmd := exec.Command("pm2-runtime", "start", filepath.Join(dir, "apps.json"))
			cmd.Env = append(os.Environ(), "PM2_HOME="+filepath.Join(dir, "pm2"))
			return cmd, pm2Config(dir, program, names, tuned)
		}},
		{name: "systemd", missing: noSystemd(), alone: true, tidy: removeGroups, command: func(dir string, names []string, tuned bool) (*exec.Cmd, error) {
			return exec.Command("sh", filepath.Join(dir, "manager")), systemdUnits(dir, program, names, tuned)
		}},
		{name: "monit", missing: installed("monit", "apt install monit"), alone: true, command: func(dir string, names []string, tuned bool) (*exec.Cmd, error) {
			return exec.Command("monit", "-I", "-c", filepath.Join(dir, "monitrc")), monitConfig(dir, program, names, tuned)
		}},
	}
	for _, spare := range []bool{false, true} {
		list = append(list, hermes(bin, program, spare))
	}
	return list
}

// services is the folder that runit and s6 read. s6 restarts at once only what has said that it is ready, which a worker that
// knows nothing of it does not.
func services(dir, program string, names []string, s6 bool) error {
	for _, name := range names {
		run := fmt.Sprintf("#!/bin/sh\nexec %s %s %s\n", program, dir, name)
		if err := write(filepath.Join(dir, "sv", name, "run"), run, 0o700); err != nil {
			return err
		}
		if !s6 {
			continue
		}
		if err := write(filepath.Join(dir, "sv", name, "finish"), "#!/bin/sh\nexit 0\n", 0o700); err != nil {
			return err
		}
	}
	return nil
}

func supervisordConfig(dir, program string, names []string, tuned bool) error {
	text := fmt.Sprintf("[supervisord]\nnodaemon=true\nlogfile=%[1]s/log\npidfile=%[1]s/pid\n", dir)
	for _, name := range names {
		text += fmt.Sprintf("[program:%s]\ncommand=%s %s %s\nautorestart=true\n", name, program, dir, name)
		if tuned {
			text += "startsecs=0\nstartretries=1000000\n"
		}
	}
	return write(filepath.Join(dir, "supervisord.conf"), text, 0o600)
}

func pm2Config(dir, program string, names []string, tuned bool) error {
	var apps []string
	for _, name := range names {
		app := fmt.Sprintf(`{"name": %q, "script": %q, "args": %q, "interpreter": "none"`, name, program, dir+" "+name)
		if tuned {
			app += `, "restart_delay": 0, "max_restarts": 1000000`
		}
		apps = append(apps, app+"}")
	}
	return write(filepath.Join(dir, "apps.json"), `{"apps": [`+strings.Join(apps, ",")+`]}`, 0o600)
}

// hermes is the program of this repository, with eight workers of which the measured one is the tools worker.
func hermes(bin, program string, spare bool) peer {
	var socket control
	p := peer{name: "hermes-supervisor", alone: true, fresh: true, settle: 75 * time.Second, serves: socket.serves, spare: spare}
	if spare {
		p.name, p.spareOf = "hermes-supervisor with a spare", socket.spare
	}
	p.command = func(dir string, names []string, _ bool) (*exec.Cmd, error) {
		libexec := filepath.Join(dir, "libexec")
		if err := os.MkdirAll(libexec, 0o700); err != nil {
			return nil, err
		}
		for _, name := range []string{"agent", "gateway", "kanban", "confine"} {
			if err := os.Symlink(filepath.Join(bin, "hermes-"+name), filepath.Join(libexec, "hermes-"+name)); err != nil && !os.IsExist(err) {
				return nil, err
			}
		}
		tools := filepath.Join(libexec, "hermes-tools")
		if err := os.Symlink(program, tools); err != nil && !os.IsExist(err) {
			return nil, err
		}
		if err := write(tools+".place", dir+" "+names[0], 0o600); err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		config := fmt.Sprintf("model: {provider: offline}\nadapters:\n  api: {enabled: true, listen: %q}\nsupervisor:\n  agent_instances: 5\n", l.Addr())
		_ = l.Close()
		if spare {
			config += "  workers: {tools: {spares: 1}}\n"
		}
		home := filepath.Join(dir, "home")
		if err := write(filepath.Join(home, "config.yaml"), config, 0o600); err != nil {
			return nil, err
		}
		if err := write(filepath.Join(home, ".env"), "API_SERVER_KEY=0123456789abcdef0123456789abcdef\n", 0o600); err != nil {
			return nil, err
		}
		cmd := exec.Command(filepath.Join(bin, "hermes-supervisor"), "run", "--home", home, "--run-dir", filepath.Join(dir, "run"))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "HERMES_LIBEXEC=" + libexec}
		return cmd, nil
	}
	return p
}

// A control is the connection to the control socket of one supervisor, one after the other.
type control struct {
	dir  string
	conn *grpc.ClientConn
	at   time.Time // when the newest process of the measured worker began to serve
	pid  int
}

// client is connected to the supervisor of dir.
func (c *control) client(dir string) (controlv1.ControlClient, error) {
	if c.dir != dir {
		sockets, _ := filepath.Glob(filepath.Join(dir, "run", "*", "control.sock"))
		if len(sockets) != 1 {
			return nil, fmt.Errorf("%d control sockets", len(sockets))
		}
		if c.conn != nil {
			_ = c.conn.Close()
		}
		conn, err := grpc.NewClient("unix://"+sockets[0], append(ipc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			return nil, err
		}
		c.dir, c.conn, c.pid = dir, conn, 0
	}
	return controlv1.NewControlClient(c.conn), nil
}

// serves reads from the journal since when the measured worker serves. It looks seldom, as each look costs the machine some of
// the time that is measured; how exact it is does not depend on that.
func (c *control) serves(dir, _ string, old int) (time.Time, int, error) {
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(300 * time.Millisecond) {
		client, err := c.client(dir)
		if err != nil {
			continue
		}
		events, err := client.Events(context.Background(), &controlv1.EventsRequest{Worker: "tools", Limit: 20})
		for err == nil {
			var e *controlv1.Event
			if e, err = events.Recv(); err == nil && e.Kind == "worker_ready" && int(e.Pid) != old && e.Pid > 0 {
				c.at, c.pid = time.UnixMicro(int64(e.At*1e6)), int(e.Pid)
			}
		}
		if c.pid != old && c.pid != 0 {
			return c.at, c.pid, nil
		}
	}
	return time.Time{}, 0, errors.New("it does not serve again")
}

func (c *control) spare(dir string) int {
	client, err := c.client(dir)
	if err != nil {
		return 0
	}
	st, err := client.Status(context.Background(), &controlv1.StatusRequest{})
	if err != nil {
		return 0
	}
	for _, w := range st.Workers {
		if w.Name == "tools" {
			return int(w.SparePid)
		}
	}
	return 0
}
