package nats_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker/driver/nats"
	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCorruptQueue: an entry of a queue that no program of ours has written is an error that names its key.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedNats(t)
	js, err := jetstream.New(connect(t, srv.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	for what, value := range map[string]string{"value": "garbage", "object": "{}", "null": "null", "lease": `{"v":1,"q":[{"n":"lease","l":9,"t":[{"i":"1","p":"P","k":5,"d":-1,"e":1}]}]}`} {
		t.Run(what, func(t *testing.T) {
			l := process(t, with(srv.URL(), "", "?prefix=corrupt"))
			if err := take(t, l, "makes the bucket "+what).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256([]byte(what))
			key := hex.EncodeToString(sum[:16])
			if _, err := js.Publish(t.Context(), "$KV."+nats.DefaultBucket+".corrupt.q."+key, []byte(value)); err != nil {
				t.Fatal(err)
			}
			corrupttest.NotGranted(t, l, what, "corrupt:q:"+key)
			if _, err := js.Publish(t.Context(), "$KV."+nats.DefaultBucket+".corrupt.q."+key, nil); err != nil {
				t.Fatal(err)
			}
			if err := take(t, l, what).Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
