package dynamodb

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/lockerproject/locker/driver/internal/casqueue"
)

// A value comes back as it was, and is never longer in an item than it is.
func TestCompress(t *testing.T) {
	random := make([]byte, 70_000)
	_, _ = rand.Read(random)
	for _, value := range [][]byte{nil, []byte("{}"), []byte(strings.Repeat(" ", mostItem)), append([]byte("{"), random...)} {
		stored := compress(value)
		if back, err := expand(stored); !bytes.Equal(back, value) || len(stored) > len(value) || err != nil {
			t.Errorf("%d bytes are stored as %d, and read as %d: %v", len(value), len(stored), len(back), err)
		}
	}
	if n := len(compress([]byte(strings.Repeat(" ", mostItem)))); n > 1000 {
		t.Errorf("%d blanks are stored as %d bytes", mostItem, n)
	}
}

// A damaged stream is refused: what is read of it may be a queue without its holder.
func TestExpandDamaged(t *testing.T) {
	stream := func(n int) []byte {
		var b bytes.Buffer
		z := compressors.Get().(*gzip.Writer)
		defer compressors.Put(z)
		z.Reset(&b)
		_, _ = z.Write(bytes.Repeat([]byte(" "), n))
		_ = z.Close()
		return b.Bytes()
	}
	whole := stream(5000)
	if value, err := expand(whole); len(value) != 5000 || err != nil {
		t.Fatalf("%d bytes, %v", len(value), err)
	}
	for what, damaged := range map[string][]byte{
		"only its beginning": gzipped,
		"cut":                whole[:len(whole)-1],
		"longer":             append(slices.Clone(whole), 0),
		"another sum":        append(slices.Clone(whole[:len(whole)-8]), 0, 0, 0, 0, 136, 19, 0, 0),
		"nothing":            stream(0),
		"too long":           stream(mostItem + 1),
		"much too long":      stream(100 * mostItem),
	} {
		if value, err := expand(damaged); err == nil {
			t.Errorf("%s: %d bytes", what, len(value))
		}
	}
}

// httpClient is an HTTP client that answers by itself.
type httpClient func(*http.Request) (*http.Response, error)

func (f httpClient) Do(r *http.Request) (*http.Response, error) { return f(r) }

// sentItem returns the size of the item with which a document is written, and its value.
func sentItem(t *testing.T, document []byte) (n int, value []byte, err error) {
	t.Helper()
	s := newStore(sdk.New(sdk.Options{
		Region: "eu-west-1", Credentials: aws.AnonymousCredentials{}, BaseEndpoint: aws.String("http://localhost"),
		HTTPClient: httpClient(func(r *http.Request) (*http.Response, error) {
			var in struct {
				Item map[string]struct{ S, N, B string }
			}
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			for name, v := range in.Item {
				b, _ := base64.StdEncoding.DecodeString(v.B)
				n += len(name) + len(v.S) + len(v.N) + len(b)
			}
			value, _ = base64.StdEncoding.DecodeString(in.Item[valueAttribute].B)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
		}),
	}), "locks", options{timeout: time.Minute, close: func() {}})
	defer s.close()
	s.checked.Store(true)
	_, err = s.Put(t.Context(), "locker:q:0123456789abcdef0123456789abcdef", document, casqueue.Version{Era: 1}, time.Minute)
	return n, value, err
}

// The item of a long queue costs a third of what its document would, and that of a short one is its document. Compression
// makes no space for more tickets: the leases of all that are queued have to fit in, whatever they are.
func TestItemsOfQueues(t *testing.T) {
	queue := func(tickets int) []byte {
		d := `{"v":1,"q":[{"n":"reports","l":1795772575083976,"t":[`
		for i := range tickets {
			d += fmt.Sprintf(`{"i":%q,"p":%q,"k":%d,"o":"host-%d/%d/%.8s","d":30000000000,"w":%d},`,
				rand.Text(), rand.Text(), 1795772574941331+i, i%7, 10_000+97*i, rand.Text(), 1795772575557+31*i)
		}
		return []byte(d[:len(d)-1] + "]}]}")
	}
	for tickets, most := range map[int]int{1: 1, 5: 1, 16: 2, 64: 5} {
		document := queue(tickets)
		n, value, err := sentItem(t, document)
		if units := (n + unit - 1) / unit; units > most || bytes.Equal(value, document) != (tickets <= 5) || err != nil {
			t.Errorf("%d tickets, of %d bytes: an item of %d units, with %d bytes, want %d units: %v", tickets, len(document), units, n, most, err)
		}
		if back, err := expand(value); !bytes.Equal(back, document) || err != nil {
			t.Errorf("%d tickets are read as %d bytes of %d, %v", tickets, len(back), len(document), err)
		}
	}
	if _, value, err := sentItem(t, append(queue(64), bytes.Repeat([]byte(" "), mostItem)...)); !errors.Is(err, casqueue.ErrTooLarge) || value != nil {
		t.Errorf("a document that would fit in because it is compressed: %v", err)
	}
}
