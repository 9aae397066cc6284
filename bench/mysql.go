package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	lockermysql "github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

var mysqlStore = store{name: "mysql", title: "mariadb, durable", subjects: func(tb *bed) []subject {
	at := testbed.MariaDB(tb, testbed.Durable(), testbed.Args("--max-connections=2000")).URL()
	var none atomic.Int64
	admin := myPool(tb, at, &none, 1)
	_, err := admin.ExecContext(context.Background(), "CREATE TABLE raw (name VARBINARY(512) PRIMARY KEY)")
	tb.check(err)
	tb.check(admin.Close())
	return []subject{
		{name: "raw insert + delete", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return sqlRaw{myPool(tb, at, n, 32)}
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
			p := myPool(tb, at, n, 32)
			d, err := lockermysql.New(p)
			tb.check(err)
			return closing{ours{locker.New(d)}, p.Close}
		}},
		{name: "GET_LOCK, a connection each", uncontended: true, contended: true, open: func(tb *bed, n *atomic.Int64) client {
			return &myNamed{myPool(tb, at, n, 32)}
		}},
	}
}}

var dialers atomic.Int64

// myPool counts packets: each statement is one.
func myPool(tb *bed, at string, n *atomic.Int64, conns int) *sql.DB {
	u, err := url.Parse(at)
	tb.check(err)
	network := fmt.Sprintf("counted%d", dialers.Add(1))
	mysql.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
		return dial(ctx, "tcp", addr, n, writes)
	})
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName, cfg.InterpolateParams = network, u.Host, u.User.Username(), "locker", true
	cfg.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(cfg)
	tb.check(err)
	p := sql.OpenDB(connector)
	p.SetMaxOpenConns(conns)
	p.SetMaxIdleConns(conns)
	tb.check(p.PingContext(context.Background()))
	return p
}

// sqlRaw is what every lock in a table does: insert and delete.
type sqlRaw struct{ db *sql.DB }

func (r sqlRaw) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	_, err := r.db.ExecContext(ctx, "INSERT INTO raw VALUES (?)", name)
	return func(ctx context.Context) error {
		_, err := r.db.ExecContext(ctx, "DELETE FROM raw WHERE name = ?", name)
		return err
	}, err
}

func (r sqlRaw) close() { _ = r.db.Close() }

type myNamed struct{ p *sql.DB }

func (r *myNamed) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	c, err := r.p.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got sql.NullInt64
	err = c.QueryRowContext(ctx, "SELECT GET_LOCK(?, 10)", name).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = fmt.Errorf("%s is taken", name)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return func(ctx context.Context) error {
		_, err := c.ExecContext(ctx, "DO RELEASE_LOCK(?)", name)
		return errors.Join(err, c.Close())
	}, nil
}

func (r *myNamed) close() { _ = r.p.Close() }
