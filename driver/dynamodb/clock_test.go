package dynamodb_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

// An answer that comes late, as after the machine was suspended, makes DynamoDB's clock no slower: an item that is
// written then is kept as long as any.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	const late = 4 * time.Second
	prefix := unique("late")
	srv := testbed.SharedDynamoDB(t)
	d, w := made(t, srv, dynamodb.WithPrefix(prefix), dynamodb.WithTimeout(time.Minute))
	if err := d.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var written time.Time
	w.does(func(op string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
		if op == "PutItem" {
			written = time.Now()
		}
		r, err := send()
		if op == "BatchGetItem" {
			time.Sleep(late)
		}
		return r, err
	})
	if _, err := d.Acquire(t.Context(), request("n", "a")); err != nil {
		t.Fatal(err)
	}
	c, _ := client(t, srv)
	items, err := scan(t.Context(), c, prefix+":q:")
	// The TTL, 5 %, a tenth of a second, a minute, and some of the margin for clocks.
	const least = 72 * time.Second
	if err != nil || len(items) != 1 || expires(items[0]).Before(written.Add(least)) {
		t.Errorf("%d items, the first expires %v after it was written, want %v at least: %v", len(items), expires(items[0]).Sub(written), least, err)
	}
}
