package testbed

import "testing"

func TestZookeeper(t *testing.T) {
	need(t, zookeeper)
	t.Parallel()
	testServer(t, zookeeper, Zookeeper(t))
}

func TestZookeeperEnsemble(t *testing.T) {
	testEnsemble(t, zookeeper, func() *Ensemble { return ZookeeperEnsemble(t) })
}
