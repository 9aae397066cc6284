package memcached

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	prefix         string
	timeout        time.Duration
	dialTimeout    time.Duration
	user, password string
	tls            *tls.Config
	dial           Dialer
	evictions      bool
}

// WithPrefix sets the beginning of all keys; the default is "locker". Drivers with different prefixes have
// different locks.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout sets how long a request may take, and how long a connection may take to be made; the default is 2 s for
// each.
func WithTimeout(request, dial time.Duration) Option {
	return func(o *options) { o.timeout, o.dialTimeout = request, dial }
}

// WithLogin sets the user and the password for servers that were started with -Y.
func WithLogin(user, password string) Option {
	return func(o *options) { o.user, o.password = user, password }
}

// WithTLS connects with TLS, to servers that were started with -Z.
func WithTLS(c *tls.Config) Option { return func(o *options) { o.tls = c } }

// Dialer connects to a server.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// WithDialer sets how connections are made; the default is that of net.Dialer. Beside a connection that is not a
// syscall.Conn, as a socket is, waiters poll less often.
func WithDialer(d Dialer) Option { return func(o *options) { o.dial = d } }

// WithEvictions accepts servers that evict items, and so locks, when their memory is full.
func WithEvictions() Option { return func(o *options) { o.evictions = true } }

// Driver keeps tickets in Memcached. See the package comment.
type Driver struct {
	servers []*server
}

// server is one of the servers, with the queues of its names.
type server struct {
	*casqueue.Engine
	client *client
}

var (
	_ driver.Driver          = (*Driver)(nil)
	_ driver.BatchRenewer    = (*Driver)(nil)
	_ driver.Breaker         = (*Driver)(nil)
	_ driver.Shortener       = (*Driver)(nil)
	_ driver.Bounder         = (*Driver)(nil)
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// New makes a Driver for servers, each host:port, or host for the port 11211. It sends no request. All programs have to
// name the same servers, in any order. The case of host names and the spelling of IP addresses do not matter; but a server
// under two names, or under a name and an address, is two servers.
func New(servers []string, opts ...Option) (*Driver, error) {
	o := options{prefix: DefaultPrefix, timeout: DefaultTimeout, dialTimeout: DefaultTimeout, dial: (&net.Dialer{}).DialContext}
	setup.Apply(&o, opts)
	servers = canonical(servers)
	if err := o.check(servers); err != nil {
		return nil, fmt.Errorf("memcached: New: %w", err)
	}
	d := &Driver{}
	for _, addr := range servers {
		c := newClient(addr, o)
		const longest = 28 * 24 * time.Hour // maxKeep is 5 % and a minute more, at least
		e := casqueue.New(casqueue.Options{Store: c, Prefix: o.prefix, MaxTTL: longest, ClockError: clockError, Pause: c.pause})
		d.servers = append(d.servers, &server{e, c})
	}
	return d, nil
}

// defaultPort is Memcached's.
const defaultPort = "11211"

// canonical returns addresses as all programs have to spell them: the server of a name depends on that. It leaves what
// is no address of a host to the program's own dialer.
func canonical(servers []string) []string {
	spelled := make([]string, len(servers))
	for i, addr := range servers {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]"), defaultPort
		}
		ip, notIP := netip.ParseAddr(host)
		n, notPort := strconv.ParseUint(port, 10, 16)
		switch {
		case notIP == nil:
			host = ip.Unmap().String()
		case strings.ContainsAny(host, ":/"):
			notPort = notIP
		}
		if spelled[i] = addr; notPort == nil {
			spelled[i] = net.JoinHostPort(strings.ToLower(host), strconv.FormatUint(n, 10))
		}
	}
	return spelled
}

func (o *options) check(servers []string) error {
	sorted := slices.Sorted(slices.Values(servers))
	switch {
	case len(servers) == 0:
		return errors.New("want at least one server")
	case len(slices.Compact(sorted)) < len(servers):
		return errors.New("a server is given twice")
	case len(o.prefix) > 128 || strings.ContainsFunc(o.prefix, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("prefix %q: want at most 128 bytes without blanks and control characters", o.prefix)
	case o.timeout <= 0 || o.dialTimeout <= 0:
		return errors.New("want timeouts greater than zero")
	}
	return nil
}

// of returns the server of a name: the one whose hash with the name is the greatest, so that one more server takes
// over as few names as possible.
func (d *Driver) of(name string) *server {
	return slices.MaxFunc(d.servers, func(a, b *server) int { return cmp.Compare(a.weight(name), b.weight(name)) })
}

func (s *server) weight(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(s.client.addr))
	// FNV mixes the last bytes badly.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// String names the store.
func (d *Driver) String() string {
	addrs := make([]string, len(d.servers))
	for i, s := range d.servers {
		addrs[i] = s.client.addr
	}
	return "memcached " + strings.Join(addrs, ",")
}

// Bounds implements driver.Bounder. Of several servers, each may be silent by itself.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	b := d.servers[0].Bounds(ttl)
	if len(d.servers) > 1 {
		b.Silence = d.servers[0].client.o.timeout + time.Second // from one request of a waiter to the next
	}
	return b
}

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return d.of(r.Name).Acquire(ctx, r)
}

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.of(h.Name).Renew(ctx, h, ttl)
}

// RenewAll implements driver.BatchRenewer.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	batches := make(map[*server][]int)
	for i, r := range rs {
		s := d.of(r.Name)
		batches[s] = append(batches[s], i)
	}
	var group sync.WaitGroup
	for s, batch := range batches {
		group.Go(func() {
			part := make([]driver.Renewal, len(batch))
			for j, i := range batch {
				part[j] = rs[i]
			}
			for j, err := range s.RenewAll(ctx, part) {
				errs[batch[j]] = err
			}
		})
	}
	group.Wait()
	return errs
}

// Shorten implements driver.Shortener.
func (d *Driver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	return d.of(h.Name).Shorten(ctx, h, left)
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	return d.of(h.Name).Release(ctx, h)
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	return d.of(name).Break(ctx, name, token)
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	return d.of(name).Inspect(ctx, name)
}

// Ping implements driver.Pinger, of all servers.
func (d *Driver) Ping(ctx context.Context) error {
	return d.each(func(_ int, s *server) error { return s.Ping(ctx) })
}

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	versions := make([]string, len(d.servers))
	err := d.each(func(i int, s *server) error {
		n, err := s.client.connect(ctx)
		if err == nil {
			versions[i] = "Memcached " + n.settings.version
		}
		return err
	})
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), ", "), err
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	return d.each(func(_ int, s *server) error {
		err := s.Engine.Close()
		s.client.close()
		return err
	})
}

// each calls f for all servers at once.
func (d *Driver) each(f func(int, *server) error) error {
	errs := make([]error, len(d.servers))
	var group sync.WaitGroup
	for i, s := range d.servers {
		group.Go(func() { errs[i] = f(i, s) })
	}
	group.Wait()
	return errors.Join(errs...)
}
