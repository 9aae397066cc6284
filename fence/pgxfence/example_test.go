package pgxfence_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/fence/pgxfence"
)

// Long work between a guarded read and a guarded write. The lock may be on any store.
func ExampleDo() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	fences, err := pgxfence.New("locker_fences")
	if err != nil {
		log.Fatal(err)
	}
	l, err := locker.Open(ctx, "redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "stock:42", func(ctx context.Context) error {
		lock, _ := locker.FromContext(ctx)
		var items int
		err := pgxfence.Do(ctx, pool, fences, lock, func(tx pgx.Tx) error { // raises the fence
			return tx.QueryRow(ctx, "SELECT items FROM stock WHERE id = 42").Scan(&items)
		})
		if err != nil {
			return err
		}
		if err := charge(ctx); err != nil {
			return err
		}
		return pgxfence.Do(ctx, pool, fences, lock, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE stock SET items = $1 WHERE id = 42", items-1)
			return err
		})
	})
	if err != nil {
		log.Print(err)
	}
}

// If the lock is in the same database, the driver is the guard, and needs no table. It
// finds locks that were opened by URL, too.
func ExampleDo_driver() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	held, err := postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer held.Close()
	l, err := locker.Open(ctx, "postgres://app@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "stock:42", func(ctx context.Context) error {
		lock, _ := locker.FromContext(ctx)
		return pgxfence.Do(ctx, pool, held, lock, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE stock SET items = items - 1 WHERE id = 42")
			return err
		})
	})
	if err != nil {
		log.Print(err)
	}
}

// For the program's own migrations.
func ExampleTable_Schema() {
	fences, err := pgxfence.New("locker_fences")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(fences.Schema())
	// Output:
	// DO $locker$ BEGIN
	//   PERFORM pg_catalog.pg_advisory_xact_lock(7737260338741178213); -- CREATE TABLE IF NOT EXISTS by two at once may fail
	//   CREATE TABLE IF NOT EXISTS "locker_fences" (
	//     name bytea PRIMARY KEY,         -- of the lock
	//     token bigint NOT NULL,          -- the greatest one seen
	//     raised_at timestamptz NOT NULL
	//   );
	// END $locker$;
}

func charge(context.Context) error { return nil }
