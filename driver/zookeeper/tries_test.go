package zookeeper_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// TestManyReadersTry: readers that try at the same time, beside one that holds, are all
// granted, with requests in proportion to their number.
func TestManyReadersTry(t *testing.T) {
	t.Parallel()
	srv := quietServer(t)
	ctx := ctxFor(t, time.Minute)
	d := open(t, srv.URL()+"?session=10m")
	try := func(id string) error {
		r := request("x", id)
		r.Shared, r.Wait = true, false
		_, err := d.Acquire(ctx, r)
		return err
	}
	if err := try("held-1"); err != nil {
		t.Fatal(err)
	}
	const n = 150
	got := counted(t, srv, func() {
		ended := make(chan error, n)
		for i := range n {
			go func() { ended <- try(fmt.Sprint("try-", i)) }()
		}
		for range n {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	if sent := got["packets_received"]; sent > 10*n {
		t.Errorf("%d requests for %d readers", sent, n)
	}
	exclusive := driver.Request{Name: "x", ID: "writer-1", TTL: time.Minute, Renewed: true}
	if _, err := d.Acquire(ctx, exclusive); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("a writer beside readers: %v", err)
	}
}
