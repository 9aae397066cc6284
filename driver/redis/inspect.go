package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// Foreign is the owner that Inspect shows for a holder that is not of this
// library: another client, which sets the key itself. It has no token.
const Foreign = "(another client of Redis)"

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	v, err := d.do(ctx, redisline.NewCall(redisline.Inspect, []string{d.keys.Main(name)}))
	if err != nil {
		return nil, err
	}
	line, ok := parseLine(v)
	if !ok {
		return nil, unexpected("inspect", v)
	}
	return line, nil
}

// parseLine reads the answer of inspect.lua.
func parseLine(v any) ([]driver.Ticket, bool) {
	list, ok := v.([]any)
	if !ok || len(list) != 5 {
		return nil, false
	}
	text, _ := list[0].(string)
	now, err := strconv.ParseInt(text, 10, 64)
	holders, ok1 := list[3].([]any)
	waiters, ok2 := list[4].([]any)
	pttl, ok3 := list[2].(int64)
	if err != nil || !ok1 || !ok2 || !ok3 {
		return nil, false
	}
	var line []driver.Ticket
	if value, held := list[1].(string); held && value != "locker *" {
		t := parseHolder(value)
		t.Remaining = max(0, time.Duration(pttl)*time.Millisecond)
		line = append(line, t)
	}
	for _, e := range append(holders, waiters...) {
		t, ok := parseTicket(e, now)
		if !ok {
			return nil, false
		}
		line = append(line, t)
	}
	slices.SortFunc(line, func(a, b driver.Ticket) int { return cmp.Compare(a.Token, b.Token) })
	return line, true
}

// parseHolder reads the value of the main key.
func parseHolder(value string) driver.Ticket {
	const head = len("locker ") // or "locker?": a claim
	if strings.HasPrefix(value, "locker") && len(value) > head {
		if part := strings.SplitN(value[head:], " ", 3); len(part) == 3 {
			token, err1 := strconv.ParseUint(part[1], 10, 64)
			t, err2 := parseRecord(part[2])
			if err1 == nil && err2 == nil {
				t.ID, t.Token, t.Held = part[0], token, true
				return t
			}
		}
	}
	return driver.Ticket{Owner: Foreign, Held: true}
}

// parseTicket reads {id, token, end of the lease or x or s, record}.
func parseTicket(e any, now int64) (t driver.Ticket, ok bool) {
	list, _ := e.([]any)
	var part [4]string
	if len(list) != len(part) {
		return t, false
	}
	for i := range part {
		if part[i], ok = list[i].(string); !ok {
			return t, false
		}
	}
	token, err := strconv.ParseUint(part[1], 10, 64)
	if err != nil {
		return t, false
	}
	if t, err = parseRecord(part[3]); err != nil {
		return t, false
	}
	t.ID, t.Token = part[0], token
	switch part[2] {
	case "x":
	case "s":
		t.Shared = true
	default:
		till, err := strconv.ParseInt(part[2], 10, 64)
		if err != nil {
			return t, false
		}
		t.Shared, t.Held = true, true
		t.Remaining = max(0, time.Duration(till-now)*time.Microsecond)
	}
	return t, true
}

// List implements driver.Lister. It scans the whole key space of each master.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	var (
		mu    sync.Mutex
		names = make(map[string]struct{})
	)
	scan := func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, d.keys.Pattern(), 1000).Iterator()
		for it.Next(ctx) {
			if name, ok := d.keys.Name(it.Val()); ok {
				mu.Lock()
				names[name] = struct{}{}
				mu.Unlock()
			}
		}
		return it.Err()
	}
	if err := d.onEach(ctx, scan); err != nil {
		return nil, err
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	return list, nil
}

// onEach calls f with each server that holds keys; it returns when ctx ends.
func (d *Driver) onEach(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	done := make(chan error, 1)
	if !d.begin() {
		return driver.ErrClosed
	}
	go func() {
		defer d.work.Done()
		switch c := d.client.(type) {
		case *redis.ClusterClient:
			done <- c.ForEachMaster(ctx, f)
		case *redis.Client:
			done <- f(ctx, c)
		default:
			done <- driver.ErrUnsupported
		}
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	c := redisline.NewCall(redisline.Break, []string{d.keys.Main(name)}, strconv.FormatUint(token, 10), name)
	v, err := d.do(ctx, c)
	if err != nil {
		return err
	}
	switch v {
	case int64(1):
		return nil
	case int64(0):
		return driver.ErrLost
	default:
		return unexpected("break", v)
	}
}

// errBroken is the cause of a loss that Break tells of.
var errBroken = errors.New("the lock was broken")

// hearLoss passes on that a ticket of this process was broken: "id token x|s name".
func (d *Driver) hearLoss(s string) {
	part := strings.SplitN(s, " ", 4)
	if len(part) != 4 {
		return
	}
	token, err := strconv.ParseUint(part[1], 10, 64)
	if err != nil {
		return
	}
	d.mu.Lock()
	tell := d.tell
	d.mu.Unlock()
	if tell != nil {
		tell(driver.Hold{Name: part[3], ID: part[0], Token: token, Shared: part[2] == "s"}, errBroken)
	}
}
