package redisqueue

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

// ClientOptions reads the options of a client of Redis from a URL, and reports whatever
// else is in the URL (u.Done). It connects to nothing. longest is the longest that a
// command may wait in the server.
//
//	redis://[user[:password]@]host[:6379][/db]           rediss:// with TLS
//	redis+sentinel://[…@]host[:26379],…/name[/db]        user and password are the server's
//	redis+cluster://[…@]host[:6379],…
//	redlock://[…@]host[:6379],…[/db]                     each host is a server by itself
func ClientOptions(u *driver.URL, longest time.Duration) (*redis.UniversalOptions, error) {
	read := max(3*time.Second, longest+time.Second)
	write := read
	if u.Scheme != "redlock" { // redlock has one timeout for all requests to a node
		read = u.Duration("read_timeout", read)
		write = u.Duration("write_timeout", read)
	}
	o := &redis.UniversalOptions{
		Username: u.User,
		Password: u.Secret("password_file", u.Password),
		// A lost SYN is sent again after 1, 3 and 7 s: dialing anew is faster.
		DialTimeout:  u.Duration("dial_timeout", 2*time.Second),
		ReadTimeout:  read,
		WriteTimeout: write,
		PoolSize:     poolSize(u),
		TLSConfig:    tlsurl.Config(u, u.Scheme == "rediss"), // go-redis adds the host's name
		// Maintenance notifications cost a round trip for each connection.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	o.Dialer = Dialer(o.DialTimeout, o.TLSConfig)
	errs := []error{where(u, o)}
	if read <= longest {
		errs = append(errs, fmt.Errorf("parameter read_timeout=%v: want more than the %v that a request may wait in the server", read, longest))
	}
	return o, errors.Join(append(errs, u.Done())...)
}

// maxPool is the largest pool. go-redis takes memory for all connections of a pool at once.
const maxPool = 1 << 16

func poolSize(u *driver.URL) int {
	n := u.Int("pool_size", 0, 1)
	if n > maxPool {
		u.Refuse(fmt.Errorf("parameter pool_size=%d: want at most %d", n, maxPool))
	}
	return n
}

// where reads the hosts and the path.
func where(u *driver.URL, o *redis.UniversalOptions) error {
	if len(u.Hosts) == 0 {
		return errors.New("no host")
	}
	o.Addrs = u.HostsWithPort("6379")
	path := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "redis+sentinel":
		o.Addrs = u.HostsWithPort("26379")
		o.SentinelUsername = u.Param("sentinel_user", "")
		o.SentinelPassword = u.Secret("sentinel_password_file", u.Param("sentinel_password", ""))
		return sentinelPath(path, o)
	case "redis+cluster":
		o.IsClusterMode = true
		if path != "" {
			return fmt.Errorf("path %q: a Cluster has no databases", u.Path)
		}
		return nil
	case "redlock":
	default:
		if len(o.Addrs) > 1 {
			return errors.New("more than one host: want one, or the scheme redis+sentinel or redis+cluster")
		}
	}
	return database(path, o)
}

// sentinelPath reads /name or /name/db.
func sentinelPath(path string, o *redis.UniversalOptions) error {
	name, db, _ := strings.Cut(path, "/")
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
