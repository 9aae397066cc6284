package mysql_test

import (
	"fmt"
	"testing"

	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCorruptQueue: nobody is granted past a row that no program of ours has written.
func TestCorruptQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		must(t, take(t, l, "makes the tables").Release(t.Context()))
		const columns = "entry, seq, name, id, process, queued, owner, note, shared, permits, ttl, held, guards, since, expires_at"
		const never = "'9999-12-31 23:59:59'"
		for what, values := range map[string]string{
			"permits": "%[1]s, 5, %[1]s, 'id', 1, 1, '', '', 1, -7, 1, 1, 0, " + never + ", " + never,
			"state":   "%[1]s, 5, %[1]s, 'id', -1, -1, x'ff', x'00', 1, 0, -7, 7, -1, '1000-01-01', " + never,
		} {
			do(t, db, fmt.Sprintf("INSERT INTO %s_tickets (%s) VALUES (%s)", prefix, columns, fmt.Sprintf(values, fmt.Sprintf("x'%x'", what))))
			corrupttest.NotGranted(t, l, what, what)
			do(t, db, fmt.Sprintf("DELETE FROM %s_tickets", prefix))
			must(t, take(t, l, what).Release(t.Context()))
		}
	})
}
