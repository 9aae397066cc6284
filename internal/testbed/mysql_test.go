package testbed

import "testing"

func TestMySQL(t *testing.T) {
	need(t, mysql)
	testServer(t, mysql, MySQL(t))
}
