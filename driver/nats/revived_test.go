package nats_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// A document that was replaced does not come back when the server is killed, after the document that replaced it has
// expired.
func TestReplacedStaysReplaced(t *testing.T) {
	t.Parallel()
	srv := testbed.Nats(t, testbed.Faults())
	s := opened(t, srv.URL()).Store()
	const key = "revived:q:a"
	if err := s.Set(t.Context(), "revived:h:a", nil, time.Hour); err != nil { // the server keeps what comes after it in one block
		t.Fatal(err)
	}
	v, err := s.Put(t.Context(), key, []byte("with a ticket"), casqueue.Version{}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), key, []byte("without"), v, time.Second); err != nil {
		t.Fatal(err)
	}
	var docs []casqueue.Document
	read := func() bool {
		docs, err = s.Get(t.Context(), key)
		return err == nil
	}
	waitFor(t, 20*time.Second, "end of the document", func() bool { return read() && docs[0].Version == casqueue.Version{} })
	srv.Restart()
	waitFor(t, 10*time.Second, "answer", read)
	if d := docs[0]; d.Version != (casqueue.Version{}) {
		t.Errorf("%q has come back", d.Value)
	}
}
