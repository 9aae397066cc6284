package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	lockerpg "github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

var postgresStore = store{name: "postgres", title: "postgres, durable", subjects: func(tb *bed) []subject {
	url := testbed.Postgres(tb, testbed.Durable(), testbed.Args("-c", "max_connections=1200")).URL()
	var none atomic.Int64
	admin := pgPool(tb, url, &none, 1)
	_, err := admin.Exec(context.Background(), "CREATE TABLE raw (name text PRIMARY KEY)")
	tb.check(err)
	admin.Close()
	floor := &pgQueues{holders: map[string]bool{}, waiting: map[string][]*pgFloor{}}
	return []subject{
		{name: "raw insert + delete", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return &pgRaw{pgPool(tb, url, n, 32)}
		}},
		{name: "delete + insert + NOTIFY (floor, no queue)", contended: true, most: 16, open: func(tb *bed, n *atomic.Int64) client {
			return floor.open(tb, url, n)
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
			p := pgPool(tb, url, n, 32)
			d, err := lockerpg.New(p)
			tb.check(err)
			return closing{ours{locker.New(d)}, func() error { p.Close(); return nil }}
		}},
		{name: "pg_advisory_lock, a connection each", uncontended: true, contended: true, open: func(tb *bed, n *atomic.Int64) client {
			return &pgAdvisory{pgPool(tb, url, n, 32)}
		}},
	}
}}

type countedQueries struct{ n *atomic.Int64 }

func (c countedQueries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (countedQueries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func pgPool(tb *bed, url string, n *atomic.Int64, conns int32) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(url)
	tb.check(err)
	cfg.MaxConns, cfg.MinConns = conns, 0
	cfg.ConnConfig.Tracer = countedQueries{n}
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	tb.check(err)
	tb.check(p.Ping(context.Background()))
	return p
}

type pgRaw struct{ p *pgxpool.Pool }

func (r *pgRaw) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	_, err := r.p.Exec(ctx, "INSERT INTO raw VALUES ($1)", name)
	return func(ctx context.Context) error {
		_, err := r.p.Exec(ctx, "DELETE FROM raw WHERE name = $1", name)
		return err
	}, err
}

func (r *pgRaw) close() { r.p.Close() }

// pgFloor is what a hand-off costs at least where LISTEN and NOTIFY wake: one
// statement deletes the row of who releases, inserts that of the next, and
// notifies it. Who is next this program knows: there is no queue in the
// database, and nothing expires. Each client listens on a channel of its own.
type pgFloor struct {
	p      *pgxpool.Pool
	queues *pgQueues
	id     string
	woken  chan struct{}
	stop   context.CancelFunc
	done   chan struct{}
}

// pgQueues are who holds and who waits, by name.
type pgQueues struct {
	mu      sync.Mutex
	clients int
	holders map[string]bool
	waiting map[string][]*pgFloor
}

func (qs *pgQueues) open(tb *bed, url string, n *atomic.Int64) client {
	qs.mu.Lock()
	qs.clients++
	f := &pgFloor{
		p: pgPool(tb, url, n, 2), queues: qs, id: fmt.Sprintf("floor_%d", qs.clients),
		woken: make(chan struct{}, 1), done: make(chan struct{}),
	}
	qs.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	c, err := pgx.Connect(ctx, url)
	tb.check(err)
	_, err = c.Exec(ctx, "LISTEN "+f.id)
	tb.check(err)
	go func() {
		defer close(f.done)
		defer c.Close(context.Background())
		for {
			if _, err := c.WaitForNotification(ctx); err != nil {
				return
			}
			f.woken <- struct{}{}
		}
	}()
	return f
}

func (f *pgFloor) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	qs := f.queues
	qs.mu.Lock()
	first := !qs.holders[name]
	qs.holders[name] = true
	if !first {
		qs.waiting[name] = append(qs.waiting[name], f)
	}
	qs.mu.Unlock()
	release := func(ctx context.Context) error { return f.release(ctx, name) }
	if first {
		_, err := f.p.Exec(ctx, "INSERT INTO raw VALUES ($1)", name+f.id)
		return release, err
	}
	select {
	case <-f.woken:
		return release, nil
	case <-ctx.Done():
	}
	if qs.leave(f, name) {
		return nil, ctx.Err()
	}
	<-f.woken // it is being handed over to
	return release, nil
}

func (qs *pgQueues) leave(f *pgFloor, name string) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	i := slices.Index(qs.waiting[name], f)
	if i >= 0 {
		qs.waiting[name] = slices.Delete(qs.waiting[name], i, i+1)
	}
	return i >= 0
}

func (f *pgFloor) release(ctx context.Context, name string) error {
	qs := f.queues
	qs.mu.Lock()
	var next *pgFloor
	if queue := qs.waiting[name]; len(queue) > 0 {
		next, qs.waiting[name] = queue[0], queue[1:]
	} else {
		qs.holders[name] = false
	}
	qs.mu.Unlock()
	if next == nil {
		_, err := f.p.Exec(ctx, "DELETE FROM raw WHERE name = $1", name+f.id)
		return err
	}
	_, err := f.p.Exec(ctx, `WITH d AS (DELETE FROM raw WHERE name = $1), i AS (INSERT INTO raw VALUES ($2))
		SELECT pg_notify($3, $2)`, name+f.id, name+next.id, next.id)
	return err
}

func (f *pgFloor) close() {
	f.stop()
	<-f.done
	f.p.Close()
}

type pgAdvisory struct{ p *pgxpool.Pool }

func (r *pgAdvisory) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	c, err := r.p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
		c.Release()
		return nil, fmt.Errorf("advisory lock: %w", err)
	}
	return func(ctx context.Context) error {
		defer c.Release()
		_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)
		return err
	}, nil
}

func (r *pgAdvisory) close() { r.p.Close() }
