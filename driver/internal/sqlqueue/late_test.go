package sqlqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Requests wait for a connection for longer than one may be under way. The time until which they may take a ticket
// counts from when they are sent: otherwise all of them would be late, for as long as the pool is exhausted.
func TestTicketAfterAWaitForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{connecting: takeBound + time.Second, take: func(until int64) (Answer, error) {
			a := Answer{Sent: time.Now(), Now: time.Now().UnixMicro()}
			if a.Result = Late; until >= a.Now {
				a.Result, a.Token = Granted, 1
			}
			return a, nil
		}}
		e := newEngine(t, Options{Store: s, Liveness: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.Acquire(ctx, driver.Request{Name: "a", ID: "1", TTL: time.Minute}); err != nil {
			t.Errorf("acquire: %v", err)
		}
	})
}
