package testbed

import "testing"

func TestMySQL(t *testing.T) {
	need(t, mysql)
	t.Parallel()
	testServer(t, mysql, MySQL(t))
}

func TestMySQLIsClosed(t *testing.T) {
	need(t, mysql)
	t.Parallel()
	testClosed(t, MySQL(t))
}
