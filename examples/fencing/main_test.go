package main

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const want = `without a guard:             A: wrote 9; B: wrote 9; sold 2 of 10, left 9: WRONG, want 8
comparing at the write only: A: wrote 9; B: wrote 9; sold 2 of 10, left 9: WRONG, want 8
raised by the read, too:     A: refused, its token is stale; B: wrote 9; sold 1 of 10, left 9: right
`

func TestFencing(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"memory":   func(testing.TB) string { return "memory://fencing" },
		"redis":    func(tb testing.TB) string { return testbed.SharedRedis(tb).URL() },
		"postgres": func(tb testing.TB) string { return testbed.SharedPostgres(tb).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			text, err := run(ctx, url(t))
			if err != nil {
				t.Fatal(err)
			}
			if text != want {
				t.Errorf("the output is\n%swant\n%s", text, want)
			}
		})
	}
}
