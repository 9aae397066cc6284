package redis

import (
	"context"

	"github.com/lockerproject/locker/driver/internal/redisline"
)

// agree makes sure, once, that all who use these locks keep them in the same way.
// With write it says how, where nobody has said so yet.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		c := redisline.NewCall(redisline.Protocol, []string{d.protocolKey})
		if write {
			c = redisline.NewCall(redisline.Protocol, []string{d.protocolKey}, d.protocol.Own())
		}
		v, err := d.do(ctx, c)
		if err != nil {
			return "", err
		}
		return redisline.ParseProtocol(v)
	})
}

// mayUse is agree for a request that is about a name.
func (d *Driver) mayUse(ctx context.Context, name string, write bool) error {
	if err := d.keys.CheckName(name); err != nil {
		return err
	}
	return d.agree(ctx, write)
}
