package redlock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// FuzzAnswer reads what a node may answer.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, what, now, n, flags int64, id string) {
		for _, v := range []any{
			[]any{what, now, n, flags}, []any{what, now, n, flags, []any{id, n}}, []any{what, now, n, flags, id}, []any{what, now, n}, []any{id, now, n, flags}, id, nil,
		} {
			a, err := parseAcquire(v)
			if list, ok := v.([]any); err == nil && (!ok || len(list) < 4 || list[0] != any(what) || a.what != what) {
				t.Errorf("%v is %+v", v, a)
			}
		}
	})
}

// FuzzHolder: whatever the main key's value, somebody holds, and Inspect shows who.
func FuzzHolder(f *testing.F) {
	f.Fuzz(func(t *testing.T, value string) {
		if h := form.Holder(value); !h.Held || h.Shared {
			t.Errorf("%q is held by %+v", value, h)
		}
	})
}

// FuzzNotice gives a process that holds a lock any notification of one node. It alone ends nothing.
func FuzzNotice(f *testing.F) {
	var clients []redis.UniversalClient
	for _, addr := range []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"} {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}))
	}
	d, err := New(clients)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = d.Close()
		for _, c := range clients {
			_ = c.Close()
		}
	})
	d.NotifyLoss(func(h driver.Hold, _ error) { f.Errorf("%v is lost", h) })
	f.Fuzz(func(t *testing.T, text string) {
		k := &ticket{r: driver.Request{Name: "name", ID: "id", TTL: time.Minute}, until: time.Now().Add(time.Minute)}
		d.mu.Lock()
		d.tickets["id"] = k
		d.mu.Unlock()
		if text == "" || text[0] != redisqueue.NoticeGrant { // which repairs the lock on the node
			d.notified(1, text)
			d.notified(1, "l"+text)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.tickets["id"] != k || len(k.breaks) > 1 {
			t.Errorf("%q has broken it: %v", text, k.breaks)
		}
	})
}
