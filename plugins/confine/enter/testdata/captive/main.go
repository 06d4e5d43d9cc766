// Command captive tries one thing after the other, as a plugin that was shut in would, and prints what came of each.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	for _, try := range strings.Split(os.Getenv("TRY"), "\n") {
		verb, what, _ := strings.Cut(try, " ")
		text, err := do(verb, what)
		if err != nil {
			text = "refused: " + err.Error()
		}
		fmt.Printf("%s: %s\n", try, text)
	}
}

func do(verb, what string) (string, error) {
	switch verb {
	case "read":
		b, err := os.ReadFile(what)
		return strings.TrimSpace(string(b)), err
	case "list":
		_, err := os.ReadDir(what)
		return "ok", err
	case "write":
		return "ok", os.WriteFile(what, []byte("x"), 0o600)
	case "grow":
		path, size, _ := strings.Cut(what, " ")
		n, _ := strconv.Atoi(size)
		signalIgnored := make([]byte, n)
		return "ok", os.WriteFile(path, signalIgnored, 0o600)
	case "dial":
		network, address, _ := strings.Cut(what, " ")
		c, err := net.Dial(network, address)
		if err == nil {
			_ = c.Close()
		}
		return "ok", err
	case "kill":
		pid, _ := strconv.Atoi(what)
		return "ok", syscall.Kill(pid, 0)
	case "env":
		return os.Getenv(what), nil
	case "uid":
		return strconv.Itoa(os.Getuid()), nil
	case "run":
		out, err := exec.Command("/bin/sh", "-c", what).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	case "forks":
		n, _ := strconv.Atoi(what)
		started := 0
		var list []*exec.Cmd
		for range n {
			c := exec.Command("/bin/sleep", "30")
			if c.Start() != nil {
				break
			}
			started++
			list = append(list, c)
		}
		for _, c := range list {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		return fmt.Sprint(started < n), nil
	}
	return "", fmt.Errorf("unknown verb %q", verb)
}
