package testbed

import "testing"

func TestMariaDB(t *testing.T) {
	need(t, mariadb)
	t.Parallel()
	testServer(t, mariadb, MariaDB(t))
}
