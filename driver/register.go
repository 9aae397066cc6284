package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// An Opener makes a driver from a URL. It reads its parameters with the
// methods of URL and ends with u.Done, so that unknown ones are refused.
// It need not reach the store.
type Opener func(ctx context.Context, u *URL) (Driver, error)

var (
	openersMu sync.RWMutex
	openers   = make(map[string]Opener)
)

// Register makes a driver available to [Open] under a URL scheme. Drivers call
// it from init. It panics when the scheme is taken, is not lower case, or
// the opener is nil.
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

// Open makes the driver for u.
func Open(ctx context.Context, u *URL) (Driver, error) {
	openersMu.RLock()
	open, ok := openers[u.Scheme]
	openersMu.RUnlock()
	if !ok {
		known := strings.Join(Schemes(), ", ")
		if known == "" {
			known = "none; import a driver package for its side effect"
		}
		return nil, fmt.Errorf("unknown scheme %q (registered: %s)", u.Scheme, known)
	}
	return open(ctx, u)
}
