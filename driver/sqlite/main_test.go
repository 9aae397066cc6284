package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) {
	code := testbed.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}
