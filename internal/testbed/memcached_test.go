package testbed

import "testing"

func TestMemcached(t *testing.T) {
	need(t, memcached)
	t.Parallel()
	testServer(t, memcached, Memcached(t))
}
