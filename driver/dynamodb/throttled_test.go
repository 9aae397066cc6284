package dynamodb_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

// A lock stays held while DynamoDB throttles half of all requests, and is released.
func TestThrottled(t *testing.T) {
	t.Parallel()
	srv, prefix := testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("throttled"))
	d, w := made(t, srv, prefix)
	l := locker.New(d)
	defer l.Close()
	const ttl = 6 * time.Second
	k := take(t, l, "n", locker.WithTTL(ttl))
	var n, refused atomic.Int64
	w.does(func(_ string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
		if n.Add(1); time.Now().UnixMilli()%1000 < 500 { // as one does that allows so much a second
			refused.Add(1)
			return refusal(400, "ThrottlingException")
		}
		return send()
	})
	select {
	case <-k.Done():
		t.Errorf("lost (%v) after %d of %d requests were refused", k.Err(), refused.Load(), n.Load())
	case <-time.After(2 * ttl):
	}
	_ = k.Release(t.Context()) // the Client goes on if it was throttled
	other, _ := made(t, srv, prefix)
	waits := locker.New(other)
	defer waits.Close()
	if next := take(t, waits, "n"); next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
}
