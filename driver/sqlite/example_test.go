package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/sqlite"
)

func Example() {
	folder, err := os.MkdirTemp("", "locks")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	d, err := sqlite.New(filepath.Join(folder, "locks.db"))
	if err != nil {
		log.Print(err)
		return
	}
	l := locker.New(d)
	defer l.Close()

	// One process of this machine at a time, whoever starts first.
	err = locker.Do(context.Background(), l, "nightly report", func(context.Context) error {
		fmt.Println("reporting")
		return nil
	})
	if err != nil {
		log.Print(err)
	}
	// Output: reporting
}
