package testbed

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A kind is what the testbed knows of one server program. Adding a server to
// the testbed is writing one of these, in one file.
type kind struct {
	name   string // what scripts/install-servers.sh calls it
	scheme string // of its URLs
	ports  int    // how many one server needs; the first is the clients'

	// find returns the binary to start, or why there is none.
	find func() (string, error)
	// prepare fills the empty data folder; nil where the server does.
	prepare func(n *node) error
	// command starts the server. Its output, folder and process group are set by
	// the caller.
	command func(n *node) *exec.Cmd
	// ready returns nil once the server at addr answers as it should.
	ready   func(ctx context.Context, addr string, o options) error
	secures bool // it can be started with [TLS] and [ACL]
	// url returns the URL of servers at addrs, "host:port,host:port"; nil where
	// it is scheme://addrs.
	url func(addrs string) string
	// addr returns the address in a URL; nil where it is the host.
	addr func(u *url.URL) string

	// killed cleans up outside of the data folder after a kill; nil: nothing.
	killed func(n *node)
	// optional kinds are not installed by default, nor required by default.
	optional bool
}

// A node is one server's place: its data, its ports, its settings.
type node struct {
	bin   string
	dir   string // data folder, kept between starts
	ports []int
	opts  options
	args  []string // what an ensemble adds to the command line
	conf  []string // what an ensemble adds to the configuration file

	place Place // of [Places]
}

// startTimeout is how long a server may take to answer. It is long because
// the machine may be busy with other packages' tests.
const startTimeout = 60 * time.Second

// env is the variable that holds the address of somebody else's server.
func (k *kind) env() string { return "LOCKER_TEST_" + strings.ToUpper(k.name) + "_URL" }

func (k *kind) urlOf(addrs string) string {
	if k.url != nil {
		return k.url(addrs)
	}
	return k.scheme + "://" + addrs
}

// program is the binary to start, or why there is none.
func (k *kind) program() (string, error) {
	if !Required() {
		return "", errors.New("none is started without LOCKER_TEST_REQUIRE=1, which `make test` sets")
	}
	return k.find()
}

// missing ends the test, which has no server to run against.
func (k *kind) missing(tb testing.TB, why error) {
	tb.Helper()
	const hint = "no %s server (%v): get one with scripts/install-servers.sh %s, or name one in %s"
	if Required() && !k.optional || os.Getenv("LOCKER_TEST_REQUIRE") == "all" {
		tb.Fatalf(hint, k.name, why, k.name, k.env())
	}
	if !Required() {
		tb.Skipf("no %s server: %v, or name one in %s", k.name, why, k.env())
	}
	tb.Skipf(hint, k.name, why, k.name, k.env())
}

// lookup finds the first of names in PATH, in dirs or in the testbed's own
// cache of binaries.
func lookup(names []string, dirs ...string) (string, error) {
	for _, name := range names {
		for _, dir := range append([]string{cacheDir("bin")}, dirs...) {
			p := filepath.Join(dir, name)
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return p, nil
			}
		}
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", errors.New(strings.Join(names, " or ") + " is not on this machine")
}

// cacheDir is a folder for what is worth keeping between runs: the binaries
// that scripts/install-servers.sh builds, and data folders to copy.
func cacheDir(sub string) string {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		base = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(base, "locker", sub)
}
