package testbed

import (
	"net/http"
	"testing"
)

func TestConsul(t *testing.T) {
	need(t, consul)
	t.Parallel()
	testServer(t, consul, Consul(t))
}

func TestConsulDurable(t *testing.T) {
	need(t, consul)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := Consul(t, Durable())
	kv := "http://" + s.Addr() + "/v1/kv/k"
	if _, err := httpDo(t0, http.MethodPut, kv, "v"); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	if got, err := httpDo(t0, http.MethodGet, kv+"?raw", ""); got != "v" || err != nil {
		t.Errorf("after a restart: %q, %v", got, err)
	}
}

func TestConsulCluster(t *testing.T) {
	testEnsemble(t, consul, func() *Ensemble { return ConsulCluster(t) })
}
