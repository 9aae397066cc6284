package testbed

import "testing"

func TestMariaDB(t *testing.T) {
	need(t, mariadb)
	testServer(t, mariadb, MariaDB(t))
}
