package testbed

import "testing"

func TestEtcd(t *testing.T) {
	need(t, etcd)
	t.Parallel()
	testServer(t, etcd, Etcd(t))
}

func TestEtcdCluster(t *testing.T) {
	testEnsemble(t, etcd, func() *Ensemble { return EtcdCluster(t) })
}
