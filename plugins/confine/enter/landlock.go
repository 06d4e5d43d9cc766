package enter

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/hermes-supervisor/hermes-supervisor/plugins/confine"
)

// What programs need of the system, read only. There is no user's data in any of it, and no secret: of /etc only what
// programs look up, as root's own files are readable to a plugin of a supervisor that runs as root.
var (
	systemFolders = []string{
		"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store",
		"/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls", "/etc/pki/ca-trust", "/etc/crypto-policies",
		"/etc/ld.so.conf.d", "/etc/alternatives", "/etc/fonts", "/run/systemd/resolve",
	}
	systemFiles = []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.preload", "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf",
		"/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/localtime", "/etc/timezone",
		"/etc/passwd", "/etc/group", "/etc/mime.types", "/etc/os-release", "/etc/ssl/openssl.cnf",
		"/dev/zero", "/dev/urandom", "/dev/random",
	}
)

// dnsPort is where names are resolved: whoever may connect to a host by name needs it.
const dnsPort = 53

// most is the highest version of Landlock that is used, if the linker sets it: so a test has an older kernel.
var most string

// version is that of Landlock in this kernel, 0 for none.
func version() int {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	if n, err := strconv.Atoi(most); err == nil {
		abi = min(abi, n)
	}
	return abi
}

// presets are what each version can shut, from 1 on.
var presets = []landlock.Config{
	landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
}

const (
	// abiRefer lets files be moved between folders at all, where that is allowed.
	abiRefer = 2
	abiNet   = 4
	abiUDP   = 10
)

// restrict shuts the process in for good, with all that this version of Landlock can. Nothing is left to the best effort of
// the library, which is no effort at all for a rule that a kernel does not know.
func restrict(p confine.Policy, socketDir string, abi int) error {
	if abi == 0 {
		return nil
	}
	rules, err := pathRules(p, socketDir, abi)
	if err != nil {
		return err
	}
	config := presets[min(abi, len(presets))-1]
	if abi >= abiNet {
		rules = append(rules, portRules(p, abi)...)
		if p.Any {
			config.HandledAccessNet = ll.AccessNetBindTCP
		}
	}
	if err := config.Restrict(rules...); err != nil {
		return err
	}
	// What is above its own folder is never granted. If that can be listed, nothing was shut.
	if _, err := os.ReadDir(filepath.Dir(p.Data)); err == nil {
		return fmt.Errorf("version %d of this kernel was asked to keep it out of %s, and does not", abi, filepath.Dir(p.Data))
	}
	return nil
}

// pathRules are the files and folders that it may use.
func pathRules(p confine.Policy, socketDir string, abi int) ([]landlock.Rule, error) {
	own := landlock.RWDirs(append([]string{p.Data}, p.Own...)...)
	if abi >= abiRefer {
		own = own.WithRefer()
	}
	rules := []landlock.Rule{
		landlock.RODirs(systemFolders...).IgnoreIfMissing(),
		landlock.ROFiles(systemFiles...).IgnoreIfMissing(),
		landlock.RWFiles("/dev/null", "/dev/full").IgnoreIfMissing(),
		landlock.ROFiles(fmt.Sprintf("/proc/self/fd/%d", confine.ProgramFD)),
		own,
	}
	if socketDir != "" {
		// The supervisor's own socket for a plain plugin is there, too, and is to be reached.
		rules = append(rules, landlock.RWDirs(socketDir).WithResolveUnix())
	}
	for _, path := range p.Read {
		rule, err := granted(path, p.Closed, landlock.ROFiles, landlock.RODirs)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	for _, path := range p.Write {
		rule, err := granted(path, p.Closed, landlock.RWFiles, landlock.RWDirs)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// portRules are the ports that it may use.
func portRules(p confine.Policy, abi int) (rules []landlock.Rule) {
	if !p.Any && len(p.Connect) > 0 {
		rules = append(rules, landlock.ConnectTCP(dnsPort))
		if abi >= abiUDP {
			rules = append(rules, landlock.ConnectSendUDP(dnsPort), landlock.BindUDP(0))
		}
		for _, port := range p.Connect {
			rules = append(rules, landlock.ConnectTCP(port))
		}
	}
	for _, port := range p.Listen {
		rules = append(rules, landlock.BindTCP(port))
	}
	return rules
}

// granted makes the rule of a path: rights that only folders have are refused for files. The path is opened first, and what
// was opened is judged and granted: a link that is changed meanwhile leads nowhere else.
func granted(path string, closed []string, file, dir func(...string) landlock.FSRule) (landlock.Rule, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) // stays open until the program is executed
	if err != nil {
		return nil, fmt.Errorf("what was granted is not there: %s: %w", path, err)
	}
	opened := fmt.Sprintf("/proc/self/fd/%d", fd)
	real, err := os.Readlink(opened)
	if err != nil {
		return nil, fmt.Errorf("granted path %s: %w", path, err)
	}
	if err := confine.CheckPath(real, closed...); err != nil {
		return nil, fmt.Errorf("granted path %s: %w", path, err)
	}
	st, err := os.Stat(opened)
	if err != nil {
		return nil, fmt.Errorf("granted path %s: %w", path, err)
	}
	if st.IsDir() {
		return dir(opened), nil
	}
	return file(opened), nil
}
