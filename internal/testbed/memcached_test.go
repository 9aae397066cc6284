package testbed

import (
	"io"
	"strings"
	"testing"
)

func TestMemcached(t *testing.T) {
	need(t, memcached)
	t.Parallel()
	testServer(t, memcached, Memcached(t))
}

func TestMemcachedEvicts(t *testing.T) {
	need(t, memcached)
	t.Parallel()
	for want, opts := range map[string][]Option{"off": nil, "on": {Evicts()}} {
		s := Memcached(t, opts...)
		c, err := dialContext(t0, s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("stats settings\r\nquit\r\n")); err != nil {
			t.Error(err)
		}
		if answer, err := io.ReadAll(c); err != nil || !strings.Contains(string(answer), "STAT evictions "+want+"\r\n") {
			t.Errorf("evictions, which should be %s: %v\n%s", want, err, answer)
		}
		_ = c.Close()
	}
}

func TestMemcachedN(t *testing.T) {
	need(t, memcached)
	t.Parallel()
	e := MemcachedN(t, 2)
	e.Members[1].Kill()
	alive(t, memcached, e.Members[0].Addr())
	if err := answers(memcached, e.Members[1].Addr()); err == nil {
		t.Error("a server that was killed answers")
	}
}
