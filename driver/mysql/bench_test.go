package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// The driver's cycle is compared with this: a row with a unique name is inserted
// and deleted, in as many round trips.
func BenchmarkCycle(b *testing.B) {
	for _, kind := range []struct {
		name  string
		start func(testing.TB, ...testbed.Option) *testbed.Server
	}{{"MariaDB", testbed.MariaDB}, {"MySQL", testbed.MySQL}} {
		b.Run(kind.name, func(b *testing.B) {
			srv := kind.start(b, testbed.Durable())
			b.Run("raw", func(b *testing.B) {
				db := connect(b, srv, "?interpolateParams=true")
				_, err := db.Exec("CREATE TABLE raw (name VARBINARY(512) PRIMARY KEY, id VARBINARY(64) NOT NULL, expires DATETIME(6) NOT NULL)")
				if err != nil {
					b.Log(err)
				}
				for b.Loop() {
					if _, err := db.Exec("INSERT INTO raw VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)", "bench", "0123456789abcdef-1", 30000000); err != nil {
						b.Fatal(err)
					}
					if _, err := db.Exec("DELETE FROM raw WHERE name = ? AND id = ?", "bench", "0123456789abcdef-1"); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("locker", func(b *testing.B) {
				l, err := locker.Open(b.Context(), srv.URL())
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				ctx := context.Background()
				for b.Loop() {
					k, err := l.Acquire(ctx, "bench", locker.WithTTL(30*time.Second))
					if err != nil {
						b.Fatal(err)
					}
					if err := k.Release(ctx); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
