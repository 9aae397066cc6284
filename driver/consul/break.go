package consul

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

// Break implements driver.Breaker. The ticket's driver hears of it by its letter
// box. A key that another program has locked below the prefix is removed, too.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.agree(ctx, false); err != nil {
		return failure(ctx, err)
	}
	for {
		pairs, _, err := d.store.list(ctx, d.keys.line(name))
		if err != nil {
			return failure(ctx, err)
		}
		i := slices.IndexFunc(pairs, func(p pair) bool { return p.CreateIndex == token && p.Session != "" })
		if i < 0 {
			return driver.ErrLost
		}
		err = d.breakPair(ctx, pairs[i])
		var refused *rollback
		switch {
		case errors.As(err, &refused): // it has gone or was changed meanwhile
			continue
		case err != nil:
			return failure(ctx, err)
		}
		d.left(name, token)
		return nil
	}
}

func (d *Driver) breakPair(ctx context.Context, p pair) error {
	ops := []op{indexOp(p), keyOp(api.KVDelete, p.Key)}
	var v value
	if json.Unmarshal(p.Value, &v) == nil && v.ID != "" {
		ops = append(ops, lockOp(d.keys.letterbox(p.Session), p.Session, []byte("broken "+v.ID)))
	}
	return d.store.do(ctx, ops...)
}
