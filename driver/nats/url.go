package nats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

func init() { driver.Register("nats", openURL) }

func openURL(_ context.Context, u *driver.URL) (driver.Driver, error) {
	var formErr error
	if len(u.Hosts) == 0 || u.Path != "" && u.Path != "/" {
		formErr = fmt.Errorf("want nats://host:4222[,host:4222…], got %s", u.Redacted())
	}
	opts := []Option{
		WithPrefix(u.Param("prefix", DefaultPrefix)),
		WithBucket(u.Param("bucket", DefaultBucket)),
		WithReplicas(u.Int("replicas", 0, 1)),
		WithTimeout(u.Duration("timeout", DefaultTimeout)),
	}
	dialTimeout := u.Duration("dial_timeout", DefaultTimeout)
	connection := login(u)
	if c := tlsurl.Config(u, false); c != nil {
		connection = append(connection, natsgo.Secure(c))
	}
	u.Duration("ttl", time.Second) // the core's
	if err := errors.Join(formErr, u.Done()); err != nil {
		return nil, err
	}
	return newDriver(nil, append(opts, func(o *options) {
		o.servers, o.dialTimeout, o.connection = u.HostsWithPort("4222"), dialTimeout, connection
	}))
}

// login reads the credentials: a user with a password, a token (in the URL it is a user alone, as in NATS' own tools),
// or a file of credentials.
func login(u *driver.URL) (opts []natsgo.Option) {
	password := u.Secret("password_file", u.Password)
	token := u.Secret("token_file", "")
	if u.User != "" && password == "" {
		if token != "" {
			u.Refuse(errors.New("parameter token_file: the URL has the token itself too: want one of them"))
		}
		token = u.User
	}
	creds, err := credentials(u.Param("credentials_file", ""))
	u.Refuse(err)
	ways := 0
	if password != "" {
		opts, ways = append(opts, natsgo.UserInfo(u.User, password)), ways+1
	}
	if token != "" {
		opts, ways = append(opts, natsgo.Token(token)), ways+1
	}
	if creds != nil {
		opts, ways = append(opts, natsgo.UserCredentialBytes(creds)), ways+1
	}
	if ways > 1 {
		u.Refuse(errors.New("a password, a token, and a file of credentials: want one of them"))
	}
	return opts
}

// credentials reads a file with a JWT and the seed of its key, as nsc writes it.
func credentials(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("parameter credentials_file: %w", err)
	}
	return b, nil
}
