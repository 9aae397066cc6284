package testbed

import "testing"

func TestPostgres(t *testing.T) {
	need(t, postgres)
	t.Parallel()
	testServer(t, postgres, Postgres(t))
}
