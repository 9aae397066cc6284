package postgres_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := testbed.Leaks(func() error { return goleak.Find() }); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}
