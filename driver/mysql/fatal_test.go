package mysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestErrorThatNoHandlerSees ends a procedure by an error that MariaDB shows to no handler, as if memory were short: its transaction
// must not stay open in the pool, where it would keep the name locked.
func TestErrorThatNoHandlerSees(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMariaDB(t)
	l, _, prefix := fresh(t, connect(t, srv, ""))
	k := take(t, l, "a", locker.Limit(9))
	short, _ := join(t, connect(t, srv, "?sort_buffer_size=1024"), prefix)
	for range 3 {
		var e *gomysql.MySQLError
		if _, err := short.TryAcquire(t.Context(), "a", locker.Limit(9)); !errors.As(err, &e) || e.Number != 1038 {
			t.Fatalf("without memory to sort: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	other, err := l.TryAcquire(ctx, "a", locker.Limit(9))
	must(t, err)
	must(t, other.Release(t.Context()))
	must(t, k.Release(t.Context()))
}
