package cabinet

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/driver/internal/setup"
)

// Defaults of options.
const (
	DefaultPrefix  = "locker"
	DefaultTimeout = 2 * time.Second
)

// Option changes how New makes a Driver.
type Option func(*options)

type options struct {
	prefix  string
	timeout time.Duration
}

// WithPrefix sets the beginning of all keys; the default is "locker". Drivers with different prefixes have
// different locks.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout sets how long a request may take; the default is 2 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Driver keeps tickets in Cabinet. See the package comment.
type Driver struct {
	*casqueue.Engine
	store *store
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.Shortener    = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
	_ fmt.Stringer        = (*Driver)(nil)
)

// New makes a Driver for the server at address, host:port. It does not reach it.
func New(address string, opts ...Option) (*Driver, error) {
	o := options{prefix: DefaultPrefix, timeout: DefaultTimeout}
	setup.Apply(&o, opts)
	if address == "" || o.timeout <= 0 {
		return nil, errors.New("cabinet: New: want an address, and a timeout greater than zero")
	}
	s := &store{address: address, timeout: o.timeout, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	return &Driver{casqueue.New(casqueue.Options{Store: s, Prefix: o.prefix}), s}, nil
}

// String names the store.
func (d *Driver) String() string { return "cabinet " + d.store.address }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	err := d.Engine.Close()
	d.store.closed.Store(true)
	d.store.hangUp()
	return err
}
