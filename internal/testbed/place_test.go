package testbed_test

import (
	"strings"
	"testing"

	"github.com/lockerproject/locker/internal/testbed"
)

// TestPlaces starts members on addresses of their own, by a command of their own.
func TestPlaces(t *testing.T) {
	here := testbed.Place{Host: "127.0.0.2", Run: []string{"env", "PLACED=yes"}}
	for name, e := range map[string]*testbed.Ensemble{
		"etcd": testbed.EtcdCluster(t, testbed.Places(here, testbed.Place{})),
		"nats": testbed.NatsCluster(t, testbed.Places(here, testbed.Place{})),
	} {
		for i, host := range []string{"127.0.0.2:", "127.0.0.1:", "127.0.0.2:"} {
			if addr := e.Members[i].Addr(); !strings.HasPrefix(addr, host) {
				t.Errorf("member %d of %s is at %s, want %s", i, name, addr, host)
			}
		}
		e.Leader().Restart()
		e.Leader()
	}
}
