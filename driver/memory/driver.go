package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

func init() { driver.Register("memory", openURL) }

// Driver is one client of a space. Several on one space exclude each other as
// processes on one server do.
type Driver struct {
	s    *space
	name string // of a shared space
	tell func(driver.Hold, error)

	closing chan struct{}
	closed  bool // guarded by s.mu
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Lister       = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.LossNotifier = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
)

// New returns a client of a new space that nobody else shares; Join makes more
// clients of it.
func New() *Driver { return newClient(newSpace(), "") }

// Join returns another client of d's space.
func (d *Driver) Join() *Driver {
	if d.s.shared {
		return Open(d.name)
	}
	return newClient(d.s, "")
}

// Open returns a client of the space of that name, which all who open the name
// share. The space ends when its last client is closed, or later with the last
// minimum hold in it.
func Open(name string) *Driver {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	s := shared[name]
	if s == nil {
		s = newSpace()
		s.shared = true
		shared[name] = s
	}
	s.clients++
	return newClient(s, name)
}

var (
	sharedMu sync.Mutex
	shared   = make(map[string]*space) // each with its clients counted
)

func newClient(s *space, name string) *Driver {
	return &Driver{s: s, name: name, closing: make(chan struct{})}
}

func openURL(_ context.Context, u *driver.URL) (driver.Driver, error) {
	u.Param("prefix", "") // names share nothing with anything else here
	if len(u.Hosts) > 1 || u.HasUser || (u.Path != "" && u.Path != "/") {
		return nil, fmt.Errorf("want memory:// or memory://name, got %s", u.Redacted())
	}
	if err := u.Done(); err != nil {
		return nil, err
	}
	name := ""
	if len(u.Hosts) == 1 {
		name = u.Hosts[0]
	}
	return Open(name), nil
}

// String names the store.
func (d *Driver) String() string { return "memory" }

// Bounds implements driver.Bounder. Waiters die with the process, so that none
// can be dead ahead of a live one.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MinTTL: time.Nanosecond, Crash: ttl}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(tell func(driver.Hold, error)) { d.tell = tell }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.s.mu.Lock()
	first := !d.closed
	d.closed = true
	d.s.mu.Unlock()
	if !first {
		return nil
	}
	close(d.closing)
	if d.s.shared {
		leave(d.name, d.s)
	}
	return nil
}

// leave ends a shared space with its last client, unless a minimum
// hold is left in it: then it stays for whoever opens the name next.
func leave(name string, s *space) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if s.clients--; s.clients == 0 && s.stop() {
		delete(shared, name)
	}
}
