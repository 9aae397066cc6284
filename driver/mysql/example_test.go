package mysql_test

import (
	"context"
	"database/sql"
	"log"

	_ "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/mysql"
)

// With the pool that the program has.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "app:secret@tcp(localhost:3306)/app")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	d, err := mysql.New(db)
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()
	k, err := l.Acquire(ctx, "order:42")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = k.Release(ctx) }()
}

// What the transaction writes is written by the holder of the lock, or not at all.
func ExampleDriver_Guard() {
	var (
		ctx = context.Background()
		db  *sql.DB
		d   *mysql.Driver
		k   *locker.Lock // acquired with d
	)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := d.Guard(ctx, tx, k); err != nil {
		log.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE orders SET shipped = 1 WHERE id = 42"); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
