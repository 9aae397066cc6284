package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A request that fails because its context has ended returns that reason, even if the connection, which has
// the same deadline, timed out first.
func TestEndOfTheContextIsTold(t *testing.T) {
	t.Parallel()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(unique()))
	_, err := d.Inspect(t.Context(), "a")
	ok(t, err)
	for range p.Config().MaxConns { // so that requests open connections themselves
		c, err := p.Acquire(t.Context())
		ok(t, err)
		defer c.Release()
	}
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		_, err = d.Inspect(ctx, "a")
		cancel()
		if err != nil {
			is(t, err, context.DeadlineExceeded)
		}
	}
}
