package sim

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockerproject/locker/driver"
)

// untrue is a driver that answers as it is told, over a store that has the one ticket or not.
type untrue struct {
	driver.Driver
	there  bool
	until  time.Time
	grant  driver.Grant
	err    error
	joins  int
	takes  time.Duration
	notify func(driver.Hold, error)
}

func (u *untrue) lease(string, string, time.Time) (bool, time.Time) { return u.there, u.until }

func (u *untrue) Acquire(_ context.Context, r driver.Request) (driver.Grant, error) {
	for range u.joins {
		r.Joined()
	}
	return u.grant, u.err
}
func (u *untrue) Release(context.Context, driver.Hold) error { time.Sleep(u.takes); return u.err }
func (u *untrue) Close() error                               { time.Sleep(u.takes); return u.err }
func (u *untrue) RenewAll(_ context.Context, rs []driver.Renewal) []error {
	return make([]error, len(rs))
}
func (u *untrue) NotifyLoss(f func(driver.Hold, error)) { u.notify = f }

// Each untrue answer of a driver is found, and no true one.
func TestContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock no busy processor delays
		h, ctx := driver.Hold{Name: "a", ID: "1"}, context.Background()
		r := driver.Request{Name: "a", ID: "1", TTL: 10 * time.Second, Joined: func() {}}
		acquire := func(c *contract) { _, _ = c.Acquire(ctx, r) }
		release := func(c *contract) { _ = c.Release(ctx, h) }
		left, leave := context.WithCancel(ctx)
		leave()
		renew := func(c *contract) { c.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: r.TTL}}) }
		now := time.Now()
		for name, test := range map[string]struct {
			u    untrue
			do   func(*contract)
			want string
		}{
			"refused":                    {untrue{err: driver.ErrNotAcquired}, acquire, ""},
			"refused, and there":         {untrue{err: driver.ErrNotAcquired, there: true}, acquire, "its driver says that it is gone"},
			"no ticket, and there":       {untrue{err: driver.NoTicket(driver.ErrUnavailable), there: true}, acquire, "its driver says that it is gone"},
			"unanswered, and there":      {untrue{err: driver.ErrUnavailable, there: true}, acquire, ""},
			"released":                   {untrue{}, release, ""},
			"released, and there":        {untrue{there: true}, release, "its driver says that it is gone"},
			"queued":                     {untrue{joins: 1, err: driver.ErrLost}, acquire, ""},
			"queued twice":               {untrue{joins: 2, err: driver.ErrLost}, acquire, "said twice"},
			"queued, and unanswered":     {untrue{joins: 1, err: driver.ErrUnavailable}, acquire, "makes no sense after the ticket"},
			"back too late":              {untrue{takes: 60 * time.Millisecond}, func(c *contract) { _ = c.Release(left, h) }, "after the end of its context"},
			"closed too late":            {untrue{takes: 160 * time.Millisecond}, func(c *contract) { _ = c.Close() }, "to close"},
			"granted":                    {untrue{there: true, until: now.Add(10 * time.Second), grant: driver.Grant{Asked: now}}, acquire, ""},
			"granted for longer":         {untrue{there: true, until: now.Add(9 * time.Second), grant: driver.Grant{Asked: now}}, acquire, "is over"},
			"renewed":                    {untrue{there: true, until: now.Add(time.Hour)}, renew, ""},
			"renewed, and not there":     {untrue{}, renew, "was renewed that is not there"},
			"lost":                       {untrue{}, func(c *contract) { c.d.(*untrue).notify(h, driver.ErrLost) }, ""},
			"said to be lost, and there": {untrue{there: true}, func(c *contract) { c.d.(*untrue).notify(h, driver.ErrLost) }, "notifies of its loss"},
		} {
			w := &world{begun: now, names: make(map[string]string)}
			c := &contract{w: w, m: &test.u, d: &test.u, process: "p0"}
			c.NotifyLoss(func(driver.Hold, error) {})
			test.do(c)
			if got := strings.Join(w.broken, "\n"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
	})
}

// A script that brings back a ticket of a process that was silent, or renews a lease that is not there, is found.
func TestOverStaysOver(t *testing.T) {
	for name, test := range map[string]struct {
		alive  time.Duration // of the process, before the script
		script string
		args   []string
		want   string
	}{
		"alive":      {time.Second, "redis.call('ZADD', KEYS[1]..':p', ARGV[2], 'chan') return 0", nil, ""},
		"silent":     {-time.Second, "redis.call('ZADD', KEYS[1]..':p', ARGV[2], 'chan') return 0", nil, "was over, and is not any more"},
		"left alone": {-time.Second, "return 0", nil, ""},
		"renewed":    {time.Second, "return {1}", []string{"other", "1000"}, "has renewed a lease"},
		"not there":  {time.Second, "return {0}", []string{"other", "1000"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{begun: time.Now(), names: make(map[string]string)}
			n := newNode(&server{w: w, name: "redis"})
			key, text := "locker:{a}", "locker holder 1 1 chan 0 0 "
			n.data[key] = &redisValue{text: &text}
			n.data[key+":x"] = &redisValue{zset: map[string]float64{"1": 2}}
			n.data[key+":t"] = &redisValue{hash: map[string]string{"1": "1 chan 0 0 "}}
			n.data[key+":p"] = &redisValue{zset: map[string]float64{"chan": float64(n.time() + test.alive.Microseconds())}}
			if test.args == nil {
				test.args = []string{"x", number(float64(n.time() + 3e6))}
			}
			l := &redisLink{n: n, channels: make(map[string]bool)}
			l.serve(redisRequest(append([]string{"EVAL", test.script, "1", key}, test.args...)))
			if got := strings.Join(w.broken, "\n"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// A node of Redlock that keeps a ticket after its release is found, if its process could have removed it.
func TestClearedOnEachNode(t *testing.T) {
	for name, test := range map[string]struct {
		left, cut bool
		want      int
	}{
		"none":           {},
		"one":            {left: true, want: 1},
		"behind a fault": {left: true, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				w := &world{begun: time.Now(), used: make(map[int64]bool), names: make(map[string]string), slow: time.Second}
				for _, name := range []string{"a", "b", "c"} {
					w.servers = append(w.servers, &server{w: w, name: name})
				}
				newNodes(w.servers)
				n := w.servers[1].model.(*node)
				if text := "redlock 1 7 1 1 chan 0 0 "; test.left {
					n.data["locker:{a}"] = &redisValue{text: &text}
				}
				p := newPath(w.servers[1], "p0")
				if test.cut {
					p.cut = time.Now().Add(time.Hour)
				}
				c := &contract{w: w, m: n, d: &untrue{}, process: "p0"}
				_ = c.Release(context.Background(), driver.Hold{Name: "a", ID: "1"})
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(w.broken) != test.want {
					t.Errorf("violations: %v, want %d", w.broken, test.want)
				}
			})
		})
	}
}

// A deletion that comes when its key is used again is found.
func TestDeletionOfAnother(t *testing.T) {
	w := &world{begun: time.Now(), names: make(map[string]string)}
	c := &cluster{s: &server{w: w, name: "etcd"}, data: newRevisions()}
	put := func(id string) {
		c.data.keys["k"] = &mvccpb.KeyValue{Key: []byte("k"), Value: []byte(`{"id":"` + id + `"}`)}
	}
	ops := []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: []byte("k")}}}}
	put("1")
	meant := c.meant(&etcdserverpb.TxnRequest{Success: ops})
	if c.removesOnly(meant, ops); len(w.broken) > 0 {
		t.Errorf("its own: %v", w.broken)
	}
	put("2")
	if c.removesOnly(meant, ops); len(w.broken) != 1 {
		t.Errorf("another: %v", w.broken)
	}
}

// A waiter whose heartbeats were apart for longer than it lives without one is found when it is granted, unless its lease
// counts from one before, or the ticket is being removed: one write may have begun its lease and have removed it.
func TestStayed(t *testing.T) {
	for gap, want := range map[time.Duration]int{3 * time.Second: 0, 5 * time.Second: 1} {
		synctest.Test(t, func(*testing.T) {
			w := &world{begun: time.Now(), used: make(map[int64]bool)}
			s := newSigns(w)
			s.note("locker:q:a", []byte(`{"v":1,"q":[{"n":"a","t":[{"i":"1","p":"p","k":7,"d":10000000000}]}]}`), nil)
			for i := range 3 {
				time.Sleep(time.Second)
				s.note("locker:h:p", []byte{'a' + byte(i)}, nil)
			}
			before := time.Now()
			time.Sleep(gap)
			s.note("locker:h:p", []byte("z"), nil)
			if s.stayed(&contract{w: w, process: "p"}, "a", "1", before); len(w.broken) != 0 {
				t.Errorf("%v, from before: %v", gap, w.broken)
			}
			if s.stayed(&contract{w: w, process: "p"}, "a", "1", time.Now()); len(w.broken) != want {
				t.Errorf("%v: %v", gap, w.broken)
			}
			s.released("1")
			if s.stayed(&contract{w: w, process: "p"}, "a", "1", time.Now()); len(w.broken) != want {
				t.Errorf("%v, when it is being removed: %v", gap, w.broken)
			}
		})
	}
}
