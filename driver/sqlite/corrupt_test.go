package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/lockerproject/locker/internal/corrupttest"
)

// TestCorruptQueue: nobody is granted past a row that no program of ours has written.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	const never = "9000000000000000000"
	for what, row := range map[string]string{
		"token":   "-5, %s, 0, 'id', 1, x'', x'', 0, 1, 1, 'held', 0, " + never,
		"permits": "5, %s, NULL, 'id', 1, x'', x'', 1, -7, 1, 'held', 0, " + never,
		"kind":    "5, %s, NULL, 'id', 1, x'', x'', 7, 1, 1, 'held', 0, " + never,
		"waiting": "5, %s, NULL, 'id', -1, x'ff', x'00', 0, 1, -1, 'waiting', " + never + ", NULL",
		"granted": "5, %s, 0, '', 1, x'', x'', 0, 1, 1, 'provisional', -" + never + ", " + never,
	} {
		t.Run(what, func(t *testing.T) {
			path := newPath(t)
			l := clientAt(t, path)
			execute(t, path, fmt.Sprintf("INSERT INTO processes VALUES (1, -1, %s), (-1, 1, %[1]s)", never),
				fmt.Sprintf("INSERT INTO tickets VALUES ("+row+")", fmt.Sprintf("x'%x'", what)))
			corrupttest.NotGranted(t, l, what, what)
			execute(t, path, "DELETE FROM tickets")
			if err := acquire(t, l, what).Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
