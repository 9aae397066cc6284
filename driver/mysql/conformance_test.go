package mysql_test

import (
	"testing"

	"github.com/lockerproject/locker/internal/mysqltest"
	"github.com/lockerproject/locker/internal/testbed"
)

// On Oracle's MySQL the suite is run by package mysqltest, at the same time.
func TestConformance(t *testing.T) {
	mysqltest.Run(t, testbed.MariaDB)
}
