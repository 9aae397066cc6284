package testbed

import "testing"

func TestPostgres(t *testing.T) {
	need(t, postgres)
	testServer(t, postgres, Postgres(t))
}
