package mysqltest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/mysqltest"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// It is not run where there is no MySQL: scripts/install-servers.sh mysql.
func TestConformanceMySQL(t *testing.T) {
	mysqltest.Run(t, testbed.MySQL)
}
