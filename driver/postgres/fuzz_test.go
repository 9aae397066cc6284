package postgres

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// FuzzReply reads what a function of the schema may answer.
func FuzzReply(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		_, grants, err := parseReply(text)
		if err != nil && !errors.Is(err, errReply) {
			t.Errorf("%q: %v", text, err)
		}
		lines := strings.Split(text, "\n")[1:]
		if err == nil && len(grants) != len(lines) {
			t.Fatalf("%q has %d grants", text, len(grants))
		}
		if !utf8.ValidString(text) {
			return // the client's encoding is UTF-8
		}
		for i, g := range grants {
			if g.ID == "" || !strings.Contains(lines[i], g.ID) || !strings.Contains(lines[i], strconv.FormatUint(g.Token, 10)) {
				t.Errorf("%q is the grant %+v", lines[i], g)
			}
		}
	})
}

// FuzzNotice gives a process with one waiter and one lock any notification: every user of a database may send one.
// Only one with their IDs says anything of them.
func FuzzNotice(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		lost := 0
		s := &fakeStore{inbox: make(chan *sqlqueue.Inbox, 1)}
		e := sqlqueue.New(sqlqueue.Options{Store: s, Notifier: s, Liveness: time.Minute})
		e.NotifyLoss(func(driver.Hold, error) { lost++ })
		ended := make(chan error, 1)
		queued := make(chan struct{})
		go func() {
			r := driver.Request{Name: "name", ID: "waits", TTL: time.Minute, Renewed: true, Wait: true, Joined: func() { close(queued) }}
			_, err := e.Acquire(context.WithoutCancel(t.Context()), r)
			ended <- err
		}()
		_, err := e.Acquire(t.Context(), driver.Request{Name: "name", ID: "holds", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		<-queued
		(<-s.inbox).Text(text)
		_ = e.Close()
		if err := <-ended; !errors.Is(err, driver.ErrClosed) && !strings.Contains(text, "waits") {
			t.Errorf("%q ends the wait: %v", text, err)
		}
		if lost > 0 && !strings.Contains(text, "holds") {
			t.Errorf("%q ends the lock", text)
		}
	})
}

// A fakeStore has two tickets: one waits, and one is held.
type fakeStore struct {
	sqlqueue.Store
	inbox chan *sqlqueue.Inbox
}

func (*fakeStore) Take(_ context.Context, _ int64, r driver.Request, _ func() int64) (sqlqueue.Answer, error) {
	if r.Wait {
		return sqlqueue.Answer{Result: sqlqueue.Queued, Due: time.Hour}, nil
	}
	return sqlqueue.Answer{Result: sqlqueue.Granted, Token: 1}, nil
}

func (*fakeStore) Heartbeat(context.Context, int64, time.Duration, bool) (sqlqueue.Heartbeat, error) {
	return sqlqueue.Heartbeat{Number: 1}, nil
}

func (*fakeStore) Mine(context.Context, int64, bool) (sqlqueue.Mine, error) {
	return sqlqueue.Mine{Sent: time.Now(), Tickets: []sqlqueue.Ticket{{ID: "waits", Token: 2}}}, nil
}

func (*fakeStore) Remove(context.Context, int64, driver.Hold) (sqlqueue.Removal, error) {
	return sqlqueue.Removal{}, nil
}

func (*fakeStore) Renew(context.Context, []driver.Renewal) ([]int, error) { return nil, nil }

func (*fakeStore) Due(_ context.Context, _ int64, names []string) ([]sqlqueue.Due, error) {
	return slices.Repeat([]sqlqueue.Due{{In: time.Hour}}, len(names)), nil
}

func (*fakeStore) Sweep(context.Context, string) (string, int64, error) { return "", 0, nil }

func (*fakeStore) Leave(context.Context, int64) error { return nil }

func (*fakeStore) Class(error) sqlqueue.Class { return 0 }

func (s *fakeStore) Listen(ctx context.Context, _ int64, in *sqlqueue.Inbox) error {
	select {
	case s.inbox <- in:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}
