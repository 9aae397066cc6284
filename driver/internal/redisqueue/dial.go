package redisqueue

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

// dialPause is how long go-redis waits after a failed dial.
const dialPause = 10 * time.Millisecond

// OneServer returns the options of a client of one server. It dials once for each try of a
// request, not five times, so that it soon reports that the server refuses connections. Behind
// Sentinel and in a Cluster the next try may find another server.
func OneServer(o *redis.UniversalOptions) *redis.Options {
	s := o.Simple()
	s.DialerRetries, s.DialerRetryTimeout = 1, dialPause
	return s
}

// Dialer makes the function by which the clients that a driver opens itself connect, with
// TLS unless config is nil. When such a connection is closed, the system does not go on
// sending what the server has not acknowledged. It would do so for minutes, and a request
// that was given up could arrive long after the one that undoes it.
func Dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if l, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
			_ = l.SetLinger(0)
		}
		if config == nil {
			return conn, nil
		}
		secure := tls.Client(conn, tlsurl.ForHost(config, addr))
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return secure, nil
	}
}
