package memcached

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

func init() { driver.Register("memcached", openURL) }

func openURL(_ context.Context, u *driver.URL) (driver.Driver, error) {
	var formErr error
	if len(u.Hosts) == 0 || u.Path != "" && u.Path != "/" {
		formErr = fmt.Errorf("want memcached://host:11211[,host:11211…], got %s", u.Redacted())
	}
	opts := []Option{
		WithPrefix(u.Param("prefix", DefaultPrefix)),
		WithTimeout(u.Duration("timeout", DefaultTimeout), u.Duration("dial_timeout", DefaultTimeout)),
		WithLogin(u.User, u.Secret("password_file", u.Password)),
		WithTLS(tlsurl.Config(u, false)),
	}
	switch v := u.Param("evictions", "refuse"); v {
	case "refuse":
	case "accept":
		opts = append(opts, WithEvictions())
	default:
		u.Refuse(fmt.Errorf("parameter evictions: want refuse or accept, got %q", v))
	}
	u.Duration("ttl", time.Second) // the core's
	if err := errors.Join(formErr, u.Done()); err != nil {
		return nil, err
	}
	return New(u.HostsWithPort(defaultPort), opts...)
}
