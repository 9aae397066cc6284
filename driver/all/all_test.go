package all_test

import (
	"slices"
	"testing"

	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/all"
)

func TestSchemes(t *testing.T) {
	want := []string{
		"all", "consul", "consuls", "dynamodb", "etcd", "etcds", "fallback", "memcached", "memory", "mysql", "nats", "postgres",
		"postgresql", "redis", "redis+cluster", "redis+sentinel", "rediss", "redlock", "sqlite", "tokenbase", "zookeeper", "zookeepers",
	}
	if got := driver.Schemes(); !slices.Equal(got, want) {
		t.Errorf("schemes %q, want %q", got, want)
	}
}
