package cabinet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
)

// maxDocument is the size of the largest document that Cabinet takes.
const maxDocument = 1 << 20

// errTimeout says that a request was not answered in time: it may have been done, or be done later.
var errTimeout = driver.Unavailable(fmt.Errorf("cabinet has not answered in time: %w", os.ErrDeadlineExceeded))

// store sends the requests.
type store struct {
	address string
	timeout time.Duration
	client  *http.Client
	closed  atomic.Bool
}

var _ interface {
	casqueue.Store
	casqueue.Clock
} = (*store)(nil)

// document is one as Cabinet sends it. Revision 0 means that there is none.
type document struct {
	Value    []byte `json:"value"`
	Revision uint64 `json:"revision"`
}

// Get implements casqueue.Store.
func (s *store) Get(ctx context.Context, keys ...string) ([]casqueue.Document, error) {
	var found []document
	if err := s.do(ctx, http.MethodGet, url.Values{"key": keys}, nil, &found); err != nil {
		return nil, err
	}
	if len(found) != len(keys) {
		return nil, fmt.Errorf("cabinet has sent %d documents for %d keys", len(found), len(keys))
	}
	docs := make([]casqueue.Document, len(keys))
	for i, d := range found {
		docs[i] = casqueue.Document{Value: d.Value, Version: casqueue.Version{Number: d.Revision}}
	}
	return docs, nil
}

// Put implements casqueue.Store. The revision 0 is that of a document that does not exist.
func (s *store) Put(ctx context.Context, key string, value []byte, read casqueue.Version, keep time.Duration) (casqueue.Version, error) {
	if len(value) > maxDocument {
		return casqueue.Version{}, fmt.Errorf("%w: %d bytes of at most %d", casqueue.ErrTooLarge, len(value), maxDocument)
	}
	query := url.Values{"key": {key}, "if": {strconv.FormatUint(read.Number, 10)}, "keep": {seconds(keep)}}
	var written document
	err := s.do(ctx, http.MethodPut, query, value, &written)
	return casqueue.Version{Number: written.Revision}, err
}

// Set implements casqueue.Store.
func (s *store) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	return s.do(ctx, http.MethodPut, url.Values{"key": {key}, "keep": {seconds(keep)}}, value, &document{})
}

// Time implements casqueue.Clock. The clock of a server that was started again is another one.
func (s *store) Time(ctx context.Context) (casqueue.Time, error) {
	var clock struct {
		Server string `json:"server"`
		Up     int64  `json:"up"` // milliseconds
	}
	err := s.do(ctx, http.MethodGet, url.Values{"clock": {""}}, nil, &clock)
	up := time.Duration(clock.Up) * time.Millisecond
	return casqueue.Time{Clock: clock.Server, Earliest: up, Latest: up + time.Millisecond}, err
}

// seconds returns keep in seconds, rounded up: a document is never forgotten too early.
func seconds(keep time.Duration) string {
	return strconv.FormatInt(int64((keep+time.Second-1)/time.Second), 10)
}

// do sends one request, which ends with ctx or after the timeout, and reads the answer.
func (s *store) do(ctx context.Context, method string, query url.Values, body []byte, answer any) error {
	bound, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer s.hangUp()
	req, err := http.NewRequestWithContext(bound, method, "http://"+s.address+"/documents?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return unanswered(ctx, bound, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return unanswered(ctx, bound, err)
	}
	if resp.StatusCode != http.StatusOK {
		return refused(resp.StatusCode, resp.Status)
	}
	return json.Unmarshal(text, answer)
}

// hangUp closes the connections that no request uses if the driver is closed. A request that overlaps with Close may
// leave one.
func (s *store) hangUp() {
	if s.closed.Load() {
		s.client.CloseIdleConnections()
	}
}

// unanswered returns the error of a request without an answer: that of the caller's context if that has ended.
func unanswered(ctx, bound context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case bound.Err() != nil:
		return errTimeout
	}
	var sent *url.Error // its text has the whole URL
	if errors.As(err, &sent) {
		err = sent.Err
	}
	return driver.Unavailable(err)
}

// refused returns the error of an unexpected answer.
func refused(code int, status string) error {
	err := fmt.Errorf("cabinet answers %s", status)
	switch {
	case code == http.StatusPreconditionFailed:
		return casqueue.ErrChanged
	case code == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w", casqueue.ErrTooLarge, err)
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		return driver.Unavailable(err) // everybody is refused; whether the request was done is unknown
	}
	return err
}
