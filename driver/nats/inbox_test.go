package nats_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/nats"
)

// A connection whose answers come under a prefix of its own works. Without the right to that prefix, the error says so.
func TestInboxPrefix(t *testing.T) {
	t.Parallel()
	srv := configured(t, `
authorization {
  users: [
    { user: app, password: geheim, permissions: { publish: ["$KV.>", "$JS.API.>"], subscribe: ["_APP.answers.>", "_LOCKER.>"] } }
    { user: mute, password: geheim, permissions: { publish: ["$KV.>", "$JS.API.>"], subscribe: ["_LOCKER.>"] } }
  ]
}`)
	as := func(user string) *locker.Client {
		nc := connect(t, srv.Addr(), natsgo.UserInfo(user, "geheim"), natsgo.CustomInboxPrefix("_APP.answers"))
		d, err := nats.New(nc, nats.WithTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		l := locker.New(d)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	if err := take(t, as("app"), "inbox").Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := as("mute").Ping(t.Context()); err == nil || driver.IsUnavailable(err) || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "_APP.answers") {
		t.Errorf("without the right to listen to answers: %v", err)
	}
}
