package stripe_test

import (
	"testing"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestStores(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...testbed.Option) *testbed.Server{
		"redis": testbed.Redis, "postgres": testbed.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			srv := start(t)
			sellOut(t, []int{60, 0, 5, 100, 0}, func() locker.Locker {
				l, err := locker.Open(t.Context(), srv.URL())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				})
				return l
			})
		})
	}
}
