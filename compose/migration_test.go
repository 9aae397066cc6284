package compose_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// The tokens of Redis are microseconds since 1970: this is one of the year 2112.
const base = 1 << 52

// The tokens of the old store are greater than the new one's by themselves.
func TestMigrationInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memory.New(), memory.New()
		old := func() driver.Driver { return compose.TokenBase(a.Join(), base/2) }
		next := func() driver.Driver { return compose.TokenBase(b.Join(), base) }
		migrate(t, 3*time.Second, [4]func() *locker.Client{
			func() *locker.Client { return locker.New(old()) },
			func() *locker.Client { return locker.New(compose.All(old(), b.Join()).Authority(0)) },
			func() *locker.Client { return locker.New(compose.All(old(), next()).Authority(1)) },
			func() *locker.Client { return locker.New(next()) },
		})
	})
}

// The same from Redis to PostgreSQL, by configuration alone.
func TestMigration(t *testing.T) {
	t.Parallel()
	old, next := testbed.SharedRedis(t).URL(), testbed.SharedPostgres(t).URL()
	prefix := "migration" + fmt.Sprint(time.Now().UnixNano())
	open := func(format string, args ...any) func() *locker.Client {
		return func() *locker.Client {
			l, err := locker.Open(t.Context(), fmt.Sprintf(format, args...))
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
	}
	migrate(t, time.Second, [4]func() *locker.Client{
		open("%s?prefix=%s", old, prefix),
		open("all://(%s)(%s)?authority=0&prefix=%s", old, next, prefix),
		open("all://(%s)(tokenbase://(%s)?n=%d)?prefix=%s", old, next, base, prefix),
		open("tokenbase://(%s)?n=%d&prefix=%s", next, base, prefix),
	})
}

// migrate runs the four steps, each with three programs that compete for two names. All
// steps run side by side that are allowed to: 1, 2 and 3, then 2, 3 and 4.
func migrate(t *testing.T, while time.Duration, steps [4]func() *locker.Client) {
	t.Helper()
	m := &migration{t: t}
	var stops [4]func()
	for step, open := range steps {
		stops[step] = m.start(step, open)
		time.Sleep(while)
		if step >= 2 {
			stops[step-2]()
			time.Sleep(while / 2)
		}
	}
	stops[2]()
	time.Sleep(while)
	stops[3]()
	for step := range steps {
		t.Logf("step %d: %d grants, %d of them beside another step, longest wait %v", step+1,
			m.grants[step].Load(), m.beside[step].Load(), time.Duration(m.longest[step].Load()).Round(time.Millisecond))
		if m.grants[step].Load() == 0 {
			t.Errorf("step %d was granted nothing", step+1)
		}
	}
	t.Logf("%d grants of steps 1 and 2 came after one of 3 or 4: a resource that checks tokens refuses those", m.refused.Load())
}

// migration is the state of the test: the resources, and what the programs of each step did.
type migration struct {
	t       *testing.T
	names   [2]resource
	running [4]atomic.Int64
	grants  [4]atomic.Int64
	beside  [4]atomic.Int64
	longest [4]atomic.Int64
	refused atomic.Int64
}

// resource is what a name protects. Two programs that use it at once are a failure.
type resource struct {
	inside atomic.Int64
	old    atomic.Uint64 // the greatest token of steps 1 and 2
	next   atomic.Uint64 // the greatest of 3 and 4
}

// start starts the programs of a step. stop stops them.
func (m *migration) start(step int, open func() *locker.Client) (stop func()) {
	const programs = 3
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	var group sync.WaitGroup
	m.running[step].Add(1)
	for range programs {
		l := open()
		group.Go(func() {
			var workers sync.WaitGroup
			for i := range m.names {
				workers.Go(func() {
					for ctx.Err() == nil {
						m.once(ctx, l, step, i)
					}
				})
			}
			workers.Wait()
			if err := l.Close(); err != nil {
				m.t.Errorf("step %d: close: %v", step+1, err)
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
		m.running[step].Add(-1)
	}
}

// once uses one resource once.
func (m *migration) once(ctx context.Context, l *locker.Client, step, i int) {
	begun := time.Now()
	k, err := l.Acquire(ctx, fmt.Sprintf("resource-%d", i), locker.WithTTL(5*time.Second))
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			m.t.Errorf("step %d: %v", step+1, err)
		}
		return
	}
	waited := int64(time.Since(begun))
	for most := m.longest[step].Load(); waited > most && !m.longest[step].CompareAndSwap(most, waited); {
		most = m.longest[step].Load()
	}
	m.use(step, &m.names[i], k.Token())
	if err := k.Release(ctx); err != nil {
		m.t.Errorf("step %d: %v", step+1, err)
	}
}

func (m *migration) use(step int, r *resource, token uint64) {
	if n := r.inside.Add(1); n != 1 {
		m.t.Errorf("step %d: %d holders at once", step+1, n)
	}
	defer r.inside.Add(-1)
	m.grants[step].Add(1)
	for other := range m.running {
		if other != step && m.running[other].Load() > 0 {
			m.beside[step].Add(1)
			break
		}
	}
	if step < 2 {
		if last := r.old.Swap(token); token <= last {
			m.t.Errorf("step %d: token %d after %d", step+1, token, last)
		}
		if r.next.Load() > 0 {
			m.refused.Add(1)
		}
	} else {
		if last := max(r.old.Load(), r.next.Swap(token)); token <= last {
			m.t.Errorf("step %d: token %d after %d", step+1, token, last)
		}
	}
	time.Sleep(time.Millisecond)
}
