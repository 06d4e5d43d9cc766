package guard

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// credentialNames are files that hold secrets wherever they are.
var credentialNames = []string{
	"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk",
	".netrc", "_netrc", ".pgpass", ".my.cnf", ".git-credentials", ".npmrc", ".pypirc", ".vault-token", ".htpasswd",
}

// credentialPaths are files or folders that hold secrets in any home directory, by the end of their path. A
// trailing slash means everything below.
var credentialPaths = []string{
	".ssh/", ".gnupg/", ".password-store/", ".aws/credentials", ".aws/sso/", ".azure/", ".config/gcloud/", ".config/gh/hosts.yml",
	".config/hub", ".docker/config.json", ".kube/config", ".cargo/credentials", ".cargo/credentials.toml", ".config/op/",
	".local/share/keyrings/", ".mozilla/firefox/", ".config/google-chrome/", ".config/chromium/", ".terraform.d/credentials.tfrc.json",
}

// systemCredentials are the secrets of the machine.
var systemCredentials = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d/", "/etc/ssl/private/", "/etc/krb5.keytab",
}

// notSecret are files among credentials that hold none.
var notSecret = []string{"known_hosts", "known_hosts.old", "config", "authorized_keys"}

// homeSecrets are the agent's own, relative to its home.
var homeSecrets = []string{".env", "auth.json", "credentials.json", "pairing/"}

func (f *Files) credential(p string) bool {
	base := path.Base(p)
	if slices.Contains(credentialNames, base) || environmentFile(base) {
		return true
	}
	if rest, ok := below(f.Home, p); ok && slices.ContainsFunc(homeSecrets, func(s string) bool { return matches(rest, s) }) {
		return true
	}
	for _, s := range systemCredentials {
		if matches(p, s) {
			return true
		}
	}
	if strings.HasPrefix(p, "/etc/ssh/") && strings.HasPrefix(base, "ssh_host_") && strings.HasSuffix(base, "_key") {
		return true
	}
	for _, s := range credentialPaths {
		i := strings.LastIndex(p+"/", "/"+strings.TrimSuffix(s, "/")+"/")
		if i < 0 || !matches(p[i+1:], s) {
			continue
		}
		if strings.Contains(s, ".ssh") && (slices.Contains(notSecret, base) || strings.HasSuffix(base, ".pub")) {
			continue
		}
		return true
	}
	return false
}

// matches says whether p is the file that rule names, or lies below the folder that it names.
func matches(p, rule string) bool {
	if dir, ok := strings.CutSuffix(rule, "/"); ok {
		return strings.HasPrefix(p, dir+"/")
	}
	return p == rule
}

// environmentFile says whether base is a file of variables as programs load it, and no example of one.
func environmentFile(base string) bool {
	if base == ".env" || base == ".envrc" {
		return true
	}
	kind, ok := strings.CutPrefix(base, ".env.")
	return ok && !slices.Contains([]string{"example", "sample", "template", "dist", "defaults"}, kind)
}

// startupNames are files in a home directory that a shell, a login or a tool runs by itself.
var startupNames = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout",
	".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".xinitrc", ".xsession", ".xprofile", ".gitconfig", ".vimrc", ".exrc", ".gdbinit", ".pythonrc",
}

// startupPaths are such files and folders by the end of their path.
var startupPaths = []string{
	".ssh/config", ".ssh/rc", ".ssh/environment", ".config/fish/", ".config/autostart/", ".config/systemd/", ".config/environment.d/",
	".config/git/", ".git/config", ".git/hooks/", ".local/share/systemd/",
}

// homeStartup are files of the agent that decide what it does, relative to its home.
var homeStartup = []string{"config.yaml", "config.yml", "plugins/", "plugins.lock", "hooks/", "cron/", "SOUL.md"}

func (f *Files) startup(p string) bool {
	if rest, ok := below(f.Home, p); ok && slices.ContainsFunc(homeStartup, func(s string) bool { return matches(rest, s) }) {
		return true
	}
	if slices.Contains(startupNames, path.Base(p)) && f.homeDirectory(filepath.Dir(p)) {
		return true
	}
	for _, s := range startupPaths {
		if i := strings.LastIndex(p+"/", "/"+strings.TrimSuffix(s, "/")+"/"); i >= 0 && matches(p[i+1:], s) {
			return true
		}
	}
	return false
}

// homeDirectory says whether dir is somebody's home.
func (f *Files) homeDirectory(dir string) bool {
	return dir == f.User || dir == "/root" || filepath.Dir(dir) == "/home" || filepath.Dir(dir) == "/Users"
}
