package redis

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// Foreign is the owner that Inspect shows for a holder of another library, which sets the
// key itself. It has no fencing token: the one that is shown depends on the key's value
// alone, so that Break removes no other holder. Keys that are no strings all have the same.
const Foreign = redisqueue.Foreign

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if err := d.mayUse(ctx, name, false); err != nil {
		return nil, err
	}
	v, err := d.do(ctx, d.keys.Call(redisqueue.Inspect, d.keys.All(d.keys.Main(name))))
	if err != nil {
		return nil, err
	}
	queue, err := form.ParseView(v)
	slices.SortFunc(queue, func(a, b driver.Ticket) int { return cmp.Compare(a.Token, b.Token) })
	return queue, err
}

// List implements driver.Lister. It scans the whole key space of each master. With
// WithKeyForm, names that only other programs hold are not listed.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var list []string
	scan := func(ctx context.Context, c *redis.Client) error {
		names, err := d.keys.Names(ctx, c, form.Word, ":x", ":s")
		mu.Lock()
		defer mu.Unlock()
		list = append(list, names...)
		return err
	}
	if err := d.onEach(ctx, scan); err != nil {
		return nil, err
	}
	slices.Sort(list)
	return slices.Compact(list), nil // the keys of a name may be on two masters while its hash slot is being moved
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if err := d.mayUse(ctx, name, false); err != nil {
		return err
	}
	for {
		c := d.keys.Call(redisqueue.Break, d.keys.All(d.keys.Main(name)), nil, name, mayBeHanded.Milliseconds())
		c.SetArg(0, c.Ticket(strconv.FormatUint(token, 10), false)) // which counts how often it is sent
		// Do would send it again after 30 ms, and the second answer may differ from the first.
		d.pipe.Start(ctx, c)
		v, err := c.Wait()
		switch n, ok := v.(int64); {
		case n == 2, redisqueue.Moving(err):
			if !retry.Sleep(ctx, mayBeHanded/5, d.life.Done()) {
				return ended(ctx, err)
			}
		case err != nil:
			return d.explain(ctx, err)
		case !ok:
			return redisqueue.Unexpected("break", v)
		case n == 0 && c.Sent() < 2:
			return driver.ErrLost
		default: // also if it was not there: an earlier sending may have removed it
			return nil
		}
	}
}
