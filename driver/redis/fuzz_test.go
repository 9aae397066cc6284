package redis

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// FuzzAnswer reads what acquire.lua may answer. Only a token is a grant.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, token string, after, flags int64) {
		for _, v := range []any{
			token, after, []any{token, after, flags}, []any{token, after, flags, token}, []any{token, after}, []any{after, token, flags}, []any{[]any{token}}, nil, flags > 0,
		} {
			a, err := parseAcquire(v)
			if _, text := v.(string); a.granted && !text {
				t.Errorf("%v is a grant with token %d", v, a.token)
			}
			if n, bad := strconv.ParseUint(token, 10, 64); err == nil && (bad != nil || a.token != n) {
				t.Errorf("%v is %+v", v, a)
			}
		}
	})
}

// FuzzHolder: whatever the main key's value, somebody holds, and Inspect shows who.
func FuzzHolder(f *testing.F) {
	f.Fuzz(func(t *testing.T, value string) {
		h := form.Holder(value)
		if !h.Held || h.Shared || h.Owner == Foreign && h.Token > 1<<32 && h.ID == value {
			t.Errorf("%q is held by %+v", value, h)
		}
	})
}

// FuzzNotice gives a process with one waiter any notification. Only one with the waiter's ID says anything of it.
func FuzzNotice(f *testing.F) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	d, err := New(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = d.Close()
		_ = c.Close()
	})
	d.NotifyLoss(func(driver.Hold, error) {})
	f.Fuzz(func(t *testing.T, text string) {
		for _, text := range []string{text, "g" + text} {
			w := &waiter{notices: make(chan notice, 1)}
			d.mu.Lock()
			d.waiters["id"] = w
			d.mu.Unlock()
			d.notified(text)
			select {
			case n := <-w.notices:
				if n.provisional < 0 || n.provisional > redisqueue.Liveness || n.token == "" && !n.gone {
					t.Errorf("%q is %+v", text, n)
				}
			default:
			}
		}
	})
}
