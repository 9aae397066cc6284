package nats_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// An account that has used up its space is refused everything: for its users the store is not available.
func TestAccountFull(t *testing.T) {
	t.Parallel()
	srv := configured(t, `accounts { a { jetstream { max_file: 64K }, users: [ { user: me, password: geheim } ] } }`)
	d := opened(t, with(srv.URL(), "me:geheim@", "?timeout=10s"))
	var held []driver.Hold
	var err error
	for err == nil && len(held) < 1000 {
		r := driver.Request{Name: fmt.Sprint("name", len(held)), ID: fmt.Sprint("id", len(held)), TTL: time.Minute, Renewed: true}
		var g driver.Grant
		if g, err = d.Acquire(t.Context(), r); err == nil {
			held = append(held, r.Hold(g.Token))
		}
	}
	if len(held) == 0 || !driver.IsUnavailable(err) || !strings.Contains(err.Error(), "resource limits exceeded for account") {
		t.Fatalf("the lock %d of an account that is full: %v", len(held), err)
	}
	if err := d.Release(t.Context(), held[0]); !driver.IsUnavailable(err) {
		t.Errorf("a release: %v", err)
	}
}
