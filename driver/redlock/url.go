package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

func init() { driver.Register("redlock", open) }

// open makes a Driver with clients of its own. It reaches no node.
//
//	redlock://[user[:password]@]host[:6379],host[:6379],host[:6379][,…][/db]
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	o := options{
		prefix:  u.Param("prefix", DefaultPrefix),
		keyForm: u.Param("key_form", ""),
		timeout: u.Duration("timeout", DefaultTimeout),
	}
	drift := u.Param("drift", strconv.FormatFloat(DefaultDrift, 'g', -1, 64))
	var err error
	if o.drift, err = strconv.ParseFloat(drift, 64); err != nil {
		u.Refuse(fmt.Errorf("parameter drift=%q: want a number, such as 0.01", drift))
	}
	hosts := u.HostsWithPort("6379")
	errs := []error{checkCount(len(hosts))}
	for i, h := range hosts {
		if slices.Contains(hosts[:i], h) {
			errs = append(errs, fmt.Errorf("host %q is given twice: want independent servers", h))
		}
	}
	client, err := redisqueue.ClientOptions(u, 0)
	if err := errors.Join(append(errs, err, o.check())...); err != nil {
		return nil, err
	}
	var clients []*redis.Client
	for _, h := range hosts {
		clients = append(clients, redis.NewClient(nodeOptions(client, h, o)))
	}
	d := newDriver(clients, o)
	d.owned = clients
	return d, nil
}

// nodeOptions returns the options of one node's client.
func nodeOptions(common *redis.UniversalOptions, host string, o options) *redis.Options {
	s := redisqueue.OneServer(common)
	s.Addr = host
	s.MaxRetries = -1
	s.DialTimeout = min(s.DialTimeout, o.timeout)
	s.Dialer = redisqueue.Dialer(s.DialTimeout, s.TLSConfig)
	return s
}

// LogTo makes go-redis log to l, or nowhere if l is nil. It is not an Option, because
// go-redis has one logger for the whole process, which all its clients use. Unless it is
// set, it writes failed connections to standard error. Drivers return these errors and
// never set the logger themselves. Call LogTo once, before clients are made.
func LogTo(l *slog.Logger) { redisqueue.LogTo(l) }
