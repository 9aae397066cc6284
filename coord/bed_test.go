package coord_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) {
	testbed.RegisterChild("party", childParty)
	testmain.Run(m)
}

// stores are the real stores of these tests.
var stores = map[string]func(testing.TB) *testbed.Server{
	"redis":    testbed.SharedRedis,
	"postgres": testbed.SharedPostgres,
}

func open(t *testing.T, url string) *locker.Client {
	t.Helper()
	l, err := locker.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newName() string { return fmt.Sprintf("coord-%016x", rand.Uint64()) }

// awaitTickets waits until a queue has n tickets.
func awaitTickets(t *testing.T, l locker.Locker, name string, n int) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		q, err := l.Inspect(t.Context(), name)
		if err == nil && len(q.Tickets) == n {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("the queue is %+v, %v; want %d tickets", q.Tickets, err, n)
		}
	}
}
