package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/sqlfence"
)

// Sell one item. The lock may be on any store.
func ExampleDo() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:secret@tcp(localhost:3306)/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fences, err := sqlfence.New(sqlfence.MySQL, "locker_fences")
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
		return sqlfence.Do(ctx, db, fences, lock, func(tx *sql.Tx) error {
			var items int
			if err := tx.QueryRowContext(ctx, "SELECT items FROM stock WHERE id = 42").Scan(&items); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE stock SET items = ? WHERE id = 42", items-1)
			return err
		})
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("the lock was lost, and nothing was sold: start over")
	}
}

// For the program's own migrations.
func ExampleTable_Schema() {
	fences, err := sqlfence.New(sqlfence.Postgres, "shop.fences")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(fences.Schema())
	// Output:
	// DO $locker$ BEGIN
	//   PERFORM pg_catalog.pg_advisory_xact_lock(7737260338741178213); -- CREATE TABLE IF NOT EXISTS by two at once may fail
	//   CREATE TABLE IF NOT EXISTS "shop"."fences" (
	//     name bytea PRIMARY KEY,         -- of the lock
	//     token bigint NOT NULL,          -- the greatest one seen
	//     raised_at timestamptz NOT NULL
	//   );
	// END $locker$;
}
