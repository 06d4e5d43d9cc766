package enter

import (
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"

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

// restrict shuts the process in for good. Newer versions of Landlock shut more; BestEffort takes what there is.
func restrict(p confine.Policy, socketDir string) error {
	own := append([]string{p.Data}, p.Own...)
	if socketDir != "" {
		own = append(own, socketDir)
	}
	rules := []landlock.Rule{
		landlock.RODirs(systemFolders...).IgnoreIfMissing(),
		landlock.ROFiles(systemFiles...).IgnoreIfMissing(),
		landlock.RWFiles("/dev/null", "/dev/full").IgnoreIfMissing(),
		landlock.ROFiles(fmt.Sprintf("/proc/self/fd/%d", confine.ProgramFD)),
		landlock.RWDirs(own...).WithRefer(),
	}
	for _, path := range p.Read {
		rule, err := granted(path, landlock.ROFiles, landlock.RODirs)
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	for _, path := range p.Write {
		rule, err := granted(path, landlock.RWFiles, landlock.RWDirs)
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	config := landlock.V11
	if p.Any {
		config.HandledAccessNet = ll.AccessNetBindTCP
	} else if len(p.Connect) > 0 {
		rules = append(rules, landlock.ConnectTCP(dnsPort), landlock.ConnectSendUDP(dnsPort), landlock.BindUDP(0))
		for _, port := range p.Connect {
			rules = append(rules, landlock.ConnectTCP(port))
		}
	}
	for _, port := range p.Listen {
		rules = append(rules, landlock.BindTCP(port))
	}
	return config.BestEffort().Restrict(rules...)
}

// granted makes the rule of a path: rights that only folders have are refused for files.
func granted(path string, file, dir func(...string) landlock.FSRule) (landlock.Rule, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("what was granted is not there: %w", err)
	}
	if st.IsDir() {
		return dir(path), nil
	}
	return file(path), nil
}
