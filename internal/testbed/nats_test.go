package testbed

import "testing"

func TestNats(t *testing.T) {
	need(t, nats)
	t.Parallel()
	testServer(t, nats, Nats(t))
}

func TestNatsDurable(t *testing.T) {
	need(t, nats)
	t.Parallel()
	s := Nats(t, Durable())
	s.Restart()
	alive(t, nats, s.Addr())
}

func TestNatsCluster(t *testing.T) {
	testEnsemble(t, nats, func() *Ensemble { return NatsCluster(t) })
}
