package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+sentinel", "redis+cluster"} {
		driver.Register(scheme, open)
	}
}

// open makes a Driver with a client of its own. It does not reach the server.
func open(_ context.Context, u *driver.URL) (driver.Driver, error) {
	o := options{
		prefix:         u.Param("prefix", DefaultPrefix),
		keyForm:        u.Param("key_form", ""),
		replicas:       u.Int("replicas", 0, 0),
		replicaTimeout: u.Duration("replica_timeout", time.Second),
	}
	config, err := redisqueue.ClientOptions(u, o.replicaTimeout)
	if err != nil {
		return nil, err
	}
	client := newClient(config)
	if err := o.check(client); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	d := newDriver(client, o)
	d.owned = true
	if config.MasterName != "" {
		d.name = fmt.Sprintf("redis sentinel %s/%s/%d", strings.Join(config.Addrs, ","), config.MasterName, config.DB)
	}
	return d, nil
}

// newClient makes a client.
func newClient(o *redis.UniversalOptions) redis.UniversalClient {
	if o.MasterName != "" || o.IsClusterMode {
		return redis.NewUniversalClient(o)
	}
	return redis.NewClient(redisqueue.OneServer(o))
}

// LogTo makes go-redis log to l, or nowhere if l is nil. It is not an Option, because
// go-redis has one logger for the whole process, which all its clients use. Unless it is
// set, it writes failed connections to standard error. Drivers return these errors and
// never set the logger themselves. Call LogTo once, before clients are made.
func LogTo(l *slog.Logger) { redisqueue.LogTo(l) }
