package memcached_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCorruptQueue: a document of a queue that no program of ours has written is an error that names its key.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMemcached(t)
	for what, value := range map[string]string{
		"value": "garbage", "object": "{}", "null": "null", "queue twice": `{"v":1,"q":[{"n":"queue twice","l":9},{"n":"queue twice","l":9,"t":[{"i":"1","p":"P","k":5,"d":1}]}]}`,
		"lease": `{"v":1,"q":[{"n":"lease","l":9,"t":[{"i":"1","p":"P","k":5,"d":-1,"e":1}]}]}`,
	} {
		t.Run(what, func(t *testing.T) {
			l := process(t, srv.URL()+"?prefix=corrupt")
			sum := sha256.Sum256([]byte(what))
			key := "corrupt:q:" + hex.EncodeToString(sum[:16])
			if _, err := command(srv.Addr(), fmt.Sprintf("set %s 0 60 %d\r\n%s", key, len(value), value), "STORED"); err != nil {
				t.Fatal(err)
			}
			corrupttest.NotGranted(t, l, what, key)
			if _, err := command(srv.Addr(), "delete "+key, "DELETED"); err != nil {
				t.Fatal(err)
			}
			if err := take(t, l, what).Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
