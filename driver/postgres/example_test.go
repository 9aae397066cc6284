package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/postgres"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	d, err := postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	err = locker.Do(ctx, l, "order:42", func(ctx context.Context) error {
		fmt.Println("shipping") // ctx ends if the lock is lost
		return ctx.Err()
	})
	if err != nil {
		log.Print(err)
	}
}

// What a guarded transaction writes is written by the holder of the lock, or
// not at all.
func ExampleDriver_Guard() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	d, err := postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	k, err := l.Acquire(ctx, "report")
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = k.Release(ctx) }()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := d.Guard(ctx, tx, k); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE reports SET done = true")
		return err
	})
	if err != nil {
		log.Print(err)
	}
}

// For work that is one transaction, the transaction can be the lock. It has to
// be READ COMMITTED.
func ExampleDriver_AcquireTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	d, err := postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()

	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := d.AcquireTx(ctx, tx, "invoice numbers"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO invoices (number) SELECT coalesce(max(number), 0) + 1 FROM invoices")
		return err
	})
	if err != nil {
		log.Print(err)
	}
}
