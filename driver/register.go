package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// An Opener makes a driver from a URL. It reads the parameters with the methods
// of URL and calls u.Done at the end, which refuses unknown ones. The core reads
// "ttl", the default lease; drivers need not look at it. An Opener need not
// connect to the store.
type Opener func(ctx context.Context, u *URL) (Driver, error)

var (
	openersMu sync.RWMutex
	openers   = make(map[string]Opener)
)

// Register makes a driver available to [Open] under a URL scheme. Drivers call
// it from init. It panics if the scheme is taken or not lower case, or the
// opener is nil.
func Register(scheme string, open Opener) {
	openersMu.Lock()
	defer openersMu.Unlock()
	if open == nil || scheme == "" || scheme != strings.ToLower(scheme) {
		panic(fmt.Sprintf("driver: Register(%q): need a lower-case scheme and an opener", scheme))
	}
	if _, taken := openers[scheme]; taken {
		panic(fmt.Sprintf("driver: Register(%q): scheme is taken", scheme))
	}
	openers[scheme] = open
}

// Schemes returns the registered schemes, sorted.
func Schemes() []string {
	openersMu.RLock()
	defer openersMu.RUnlock()
	schemes := make([]string, 0, len(openers))
	for s := range openers {
		schemes = append(schemes, s)
	}
	slices.Sort(schemes)
	return schemes
}

// Open makes the driver for u. Unless the store is unavailable, an error says
// what is wrong with the URL and wraps [ErrInvalidOption].
func Open(ctx context.Context, u *URL) (Driver, error) {
	openersMu.RLock()
	open, ok := openers[u.Scheme]
	openersMu.RUnlock()
	if !ok {
		return nil, mark(unknownScheme(u.Scheme), ErrInvalidOption)
	}
	d, err := open(ctx, u)
	if err == nil {
		return d, nil
	}
	if ctx.Err() == nil && !IsUnavailable(err) {
		err = mark(err, ErrInvalidOption)
	}
	return nil, err
}

// packages maps each scheme of this module to its package.
var packages = map[string]string{
	"dynamodb": "driver/dynamodb",
	"memory":   "driver/memory", "memcached": "driver/memcached",
	"redis": "driver/redis", "rediss": "driver/redis", "redis+sentinel": "driver/redis", "redis+cluster": "driver/redis",
	"redlock":   "driver/redlock",
	"zookeeper": "driver/zookeeper", "zookeepers": "driver/zookeeper",
	"etcd": "driver/etcd", "etcds": "driver/etcd",
	"consul": "driver/consul", "consuls": "driver/consul",
	"postgres": "driver/postgres", "postgresql": "driver/postgres",
	"mysql":  "driver/mysql",
	"nats":   "driver/nats",
	"sqlite": "driver/sqlite",
	"all":    "compose", "fallback": "compose", "tokenbase": "compose",
}

// unknownScheme returns an error that names the missing import or, for a scheme
// that the module does not have, the registered schemes.
func unknownScheme(scheme string) error {
	const module = "github.com/lockerproject/locker/"
	if pkg, ok := packages[scheme]; ok {
		return fmt.Errorf("the driver for %s:// is not linked into this program: import _ %q (or %q for all drivers)",
			scheme, module+pkg, module+"driver/all")
	}
	known := strings.Join(Schemes(), ", ")
	if known == "" {
		known = "none; import a driver package, such as " + module + "driver/redis"
	}
	return fmt.Errorf("unknown scheme %q (registered: %s)", scheme, known)
}
