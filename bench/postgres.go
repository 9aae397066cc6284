package main

import (
	"context"
	"fmt"
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
	return []subject{
		{name: "raw insert + delete", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return &pgRaw{pgPool(tb, url, n, 32)}
		}},
		{name: "locker", uncontended: true, contended: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
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
