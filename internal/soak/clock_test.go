//go:build linux

package main

import (
	"database/sql"
	"os"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockerproject/locker/internal/testbed"
)

// TestClock steps the clock of a PostgreSQL, each of whose connections has a process of its own: no two of them may
// have different times at once, as they have none on a machine whose clock is set.
func TestClock(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_NO_CACHE", "DONT_FAKE_MONOTONIC", "FAKETIME_DISABLE_SHM"} {
		t.Setenv(name, os.Getenv(name)) // put back at the end
	}
	dir, err := os.MkdirTemp("", "clock") //nolint:usetesting // t.TempDir is for nobody else, and the server is not run by root
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	c, err := makeClock()
	if err != nil {
		t.Skip(err)
	}
	server := testbed.Postgres(t)
	db, err := sql.Open("pgx", server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var sessions []*sql.Conn
	for range 8 {
		s, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	ahead := func(s *sql.Conn) time.Duration {
		var at time.Time
		if err := s.QueryRowContext(t.Context(), "select clock_timestamp()").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at.Sub(time.Now().Round(0))
	}
	for _, step := range []time.Duration{0, -time.Hour, 2 * time.Hour} {
		if err := c.step(step); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for i, s := range sessions {
				if off := ahead(s) - c.offset; off.Abs() > time.Minute {
					t.Errorf("after a step of %v to %v the clock of session %d is %v off", step, c.offset, i, off)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}
