package redisline

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockerproject/locker/driver"
)

// ClientOptions reads from a URL how to reach Redis, asks it whether there is
// anything else in it (u.Done), and reaches nobody. longest is the longest
// that a command may wait in the server.
//
//	redis://[user[:password]@]host[:6379][/db]           rediss:// with TLS
//	redis+sentinel://[…@]host[:26379],…/name[/db]        user and password are the server's
//	redis+cluster://[…@]host[:6379],…
func ClientOptions(u *driver.URL, longest time.Duration) (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		Username: u.User,
		Password: u.Password,
		// A SYN that was lost is sent again after 1, 3 and 7 s: to dial anew is sooner.
		DialTimeout: u.Duration("dial_timeout", 2*time.Second),
		ReadTimeout: u.Duration("read_timeout", max(3*time.Second, longest+time.Second)),
		PoolSize:    u.Int("pool_size", 0, 1),
		// It costs a round trip for each connection.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	o.WriteTimeout = o.ReadTimeout
	var errs []error
	switch u.Scheme {
	case "redis+sentinel":
		o.Addrs = u.HostsWithPort("26379")
		o.SentinelUsername = u.Param("sentinel_user", "")
		o.SentinelPassword = u.Param("sentinel_password", "")
		errs = append(errs, sentinelPath(u.Path, o))
	case "redis+cluster":
		o.Addrs, o.IsClusterMode = u.HostsWithPort("6379"), true
		if strings.Trim(u.Path, "/") != "" {
			errs = append(errs, fmt.Errorf("path %q: a Cluster has no databases", u.Path))
		}
	default:
		o.Addrs = u.HostsWithPort("6379")
		if len(o.Addrs) > 1 {
			errs = append(errs, errors.New("more than one host: want one, or the scheme redis+sentinel or redis+cluster"))
		}
		errs = append(errs, database(strings.Trim(u.Path, "/"), o))
	}
	if len(o.Addrs) == 0 {
		errs = append(errs, errors.New("no host"))
	}
	errs = append(errs, secure(u, o))
	if o.ReadTimeout <= longest {
		errs = append(errs, fmt.Errorf("read_timeout %v: want more than the %v that a request may wait in the server", o.ReadTimeout, longest))
	}
	return o, errors.Join(append(errs, u.Done())...)
}

// sentinelPath reads /name or /name/db.
func sentinelPath(path string, o *redis.UniversalOptions) error {
	name, db, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if name == "" {
		return errors.New("no name of the primary: want redis+sentinel://hosts/name")
	}
	o.MasterName = name
	return database(db, o)
}

func database(s string, o *redis.UniversalOptions) error {
	if s == "" {
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return fmt.Errorf("database %q: want a number", s)
	}
	o.DB = n
	return nil
}

// secure reads what is about TLS.
func secure(u *driver.URL, o *redis.UniversalOptions) error {
	on := u.Bool("tls", u.Scheme == "rediss")
	ca := u.Param("ca", "")
	skip := u.Bool("skip_verify", false)
	cert, key := u.Param("cert", ""), u.Param("key", "")
	if !on {
		if ca != "" || skip || cert != "" || key != "" {
			return errors.New("parameters ca, cert, key and skip_verify are for TLS: want rediss:// or tls=true")
		}
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skip} //nolint:gosec // the user asks for it by name
	if len(o.Addrs) == 1 && !o.IsClusterMode && o.MasterName == "" {
		c.ServerName, _, _ = net.SplitHostPort(o.Addrs[0])
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("parameter ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("parameter ca: no certificate in %s", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("parameters cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	o.TLSConfig = c
	return nil
}
