package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const systemdProgram = "/lib/systemd/systemd"

// groupTrees are where a user manager needs a group of its own. Which of them there are depends on the age of the machine.
func groupTrees() (list []string) {
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			list = append(list, dir)
		}
	}
	return list
}

// noSystemd says why a manager of its own cannot run here, nothing if it can.
func noSystemd() string {
	switch {
	case installed("systemctl", "apt install systemd") != "" || !isFile(systemdProgram):
		return "not installed (apt install systemd)"
	case os.Geteuid() != 0:
		return "needs root for a mount namespace and a cgroup"
	case len(groupTrees()) == 0:
		return "needs a cgroup tree"
	}
	return ""
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func groupOf(tree, dir string) string { return filepath.Join(tree, "peers-"+filepath.Base(dir)) }

// systemdUnits makes a user manager that runs on any machine: with a mount namespace and a cgroup of its own, whatever was
// booted. Manager is the script that becomes it.
func systemdUnits(dir, program string, names []string, tuned bool) error {
	units := filepath.Join(dir, "units")
	wants := filepath.Join(units, "default.target.wants")
	if err := write(filepath.Join(units, "default.target"), "[Unit]\nDescription=bench\n", 0o600); err != nil {
		return err
	}
	for _, target := range []string{"basic", "shutdown"} { // dependencies of each service: without them none is restarted
		if err := write(filepath.Join(units, target+".target"), "[Unit]\nDefaultDependencies=no\n", 0o600); err != nil {
			return err
		}
	}
	limits, delay := "", ""
	if tuned {
		limits, delay = "StartLimitIntervalSec=0\n", "RestartSec=0\n"
	}
	for _, name := range names {
		unit := fmt.Sprintf("[Unit]\n%s[Service]\nExecStart=%s %s %s\nRestart=always\n%sStandardOutput=null\nStandardError=null\n",
			limits, program, dir, name, delay)
		if err := write(filepath.Join(units, name+".service"), unit, 0o600); err != nil {
			return err
		}
		if err := os.MkdirAll(wants, 0o700); err != nil {
			return err
		}
		if err := os.Symlink("../"+name+".service", filepath.Join(wants, name+".service")); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o700); err != nil {
		return err
	}
	script := ""
	for _, tree := range groupTrees() {
		script += fmt.Sprintf("mkdir -p %[1]s && echo $$ >%[1]s/cgroup.procs\n", groupOf(tree, dir))
	}
	script += fmt.Sprintf(`exec unshare --mount --propagation private sh -c '
mount -t tmpfs none /run && mkdir -p /run/systemd/system || exit 1
exec env -i PATH="$PATH" HOME=%[1]s XDG_RUNTIME_DIR=%[1]s/run SYSTEMD_UNIT_PATH=%[1]s/units SYSTEMD_LOG_TARGET=console %[2]s --user'
`, dir, systemdProgram)
	return write(filepath.Join(dir, "manager"), script, 0o700)
}

// removeGroups removes the cgroups of a manager that has ended, the innermost first. What was killed a moment ago may still be
// in one.
func removeGroups(dir string) {
	for begun := time.Now(); time.Since(begun) < gone && !removedGroups(dir); {
		time.Sleep(20 * time.Millisecond)
	}
}

func removedGroups(dir string) (all bool) {
	all = true
	for _, tree := range groupTrees() {
		var found []string
		_ = filepath.WalkDir(groupOf(tree, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				found = append(found, path)
			}
			return nil
		})
		for _, path := range slices.Backward(found) {
			all = os.Remove(path) == nil && all
		}
	}
	return all
}

// monitConfig has monit start programs that it is not the parent of, as is its way: it looks at a pid once in a cycle.
func monitConfig(dir, program string, names []string, tuned bool) error {
	cycle := 30
	if tuned {
		cycle = 1
	}
	text := fmt.Sprintf(`set daemon %[2]d
set logfile %[1]s/log
set pidfile %[1]s/monit.pid
set idfile %[1]s/monit.id
set statefile %[1]s/monit.state
`, dir, cycle)
	for _, name := range names {
		start := filepath.Join(dir, "start-"+name)
		if err := write(start, fmt.Sprintf("#!/bin/sh\n%[1]s %[2]s %[3]s </dev/null >/dev/null 2>&1 &\necho $! >%[2]s/%[3]s.pid\n", program, dir, name), 0o700); err != nil {
			return err
		}
		text += fmt.Sprintf("check process %[2]s with pidfile %[1]s/%[2]s.pid\n  start program = \"%[3]s\"\n", dir, name, start)
	}
	return write(filepath.Join(dir, "monitrc"), text, 0o600)
}
