package testbed

import "testing"

func TestMemcached(t *testing.T) {
	need(t, memcached)
	testServer(t, memcached, Memcached(t))
}
