package dynamodb_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// unique returns a name that no test has had, even if the test is run several times.
func unique(name string) string { return name + "-" + rand.Text() }

// open opens a driver by URL.
func open(ctx context.Context, url string) (driver.Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// patience is how long a request may take here: DynamoDB Local takes long for its first requests on a busy machine.
const patience = 10 * time.Second

// process opens a Locker as a process of its own would.
func process(t *testing.T, url string, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	l, err := locker.Open(t.Context(), url+"&timeout="+patience.String(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// take acquires a lock that is free, or soon will be.
func take(t *testing.T, l *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, append(opts, locker.WithWait(20*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// wire sends the requests of a client, counts them, and lets a test interfere.
type wire struct {
	http.Transport

	mu     sync.Mutex
	counts map[string]int // by operation
	bodies []string       // of BatchGetItem
	// around handles a request, and may call send; nil: send.
	around func(op string, body []byte, send func() (*http.Response, error)) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	w.mu.Lock()
	if w.counts == nil {
		w.counts = make(map[string]int)
	}
	w.counts[op]++
	if op == "BatchGetItem" {
		w.bodies = append(w.bodies, string(body))
	}
	around := w.around
	w.mu.Unlock()
	send := func() (*http.Response, error) {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		return w.Transport.RoundTrip(again)
	}
	if around == nil {
		return send()
	}
	return around(op, body, send)
}

// does sets how requests are handled.
func (w *wire) does(f func(op string, body []byte, send func() (*http.Response, error)) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.around = f
}

func (w *wire) count(ops ...string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for op, count := range w.counts {
		if len(ops) == 0 || op == ops[0] {
			n += count
		}
	}
	return n
}

// answer is an answer of a server.
func answer(status int, body string) (*http.Response, error) {
	r := httptest.NewRecorder()
	r.Header().Set("Content-Type", "application/x-amz-json-1.0")
	r.WriteHeader(status)
	_, _ = r.WriteString(body)
	return r.Result(), nil
}

// refusal is an answer that says that a request was not done.
func refusal(status int, code string) (*http.Response, error) {
	return answer(status, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"because"}`, code))
}

// client returns a client of the SDK, with the default retries, on a wire.
func client(tb testing.TB, srv *testbed.Server, opts ...func(*sdk.Options)) (*sdk.Client, *wire) {
	tb.Helper()
	w := new(wire)
	tb.Cleanup(w.CloseIdleConnections)
	return sdk.New(sdk.Options{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		BaseEndpoint: aws.String("http://" + srv.Addr()), HTTPClient: &http.Client{Transport: w},
	}, opts...), w
}

// made opens a driver on a client of its own.
func made(tb testing.TB, srv *testbed.Server, opts ...dynamodb.Option) (*dynamodb.Driver, *wire) {
	tb.Helper()
	c, w := client(tb, srv)
	d, err := dynamodb.New(c, "locker", append([]dynamodb.Option{dynamodb.WithCreate(), dynamodb.WithTimeout(patience)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return d, w
}

// scan returns all items whose key begins with a prefix.
func scan(ctx context.Context, c *sdk.Client, prefix string) (items []map[string]types.AttributeValue, err error) {
	in := &sdk.ScanInput{
		TableName: aws.String("locker"), ConsistentRead: aws.Bool(true), FilterExpression: aws.String("begins_with(id, :p)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":p": &types.AttributeValueMemberS{Value: prefix}},
	}
	for {
		out, err := c.Scan(ctx, in)
		if err != nil {
			return nil, err
		}
		items = append(items, out.Items...)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return items, nil
		}
	}
}

// expires returns until when an item has to be kept.
func expires(item map[string]types.AttributeValue) time.Time {
	n, _ := item["expires"].(*types.AttributeValueMemberN)
	if n == nil {
		return time.Time{}
	}
	seconds, _ := strconv.ParseInt(n.Value, 10, 64)
	return time.Unix(seconds, 0)
}

// live counts the items of a prefix that have to be kept. The server counts them: the suite asks for a minute, many times a second.
func live(ctx context.Context, c *sdk.Client, prefix string) (n int, err error) {
	in := &sdk.ScanInput{
		TableName: aws.String("locker"), ConsistentRead: aws.Bool(true), Select: types.SelectCount,
		FilterExpression: aws.String("begins_with(id, :p) AND expires > :now"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":p":   &types.AttributeValueMemberS{Value: prefix},
			":now": &types.AttributeValueMemberN{Value: strconv.FormatInt(time.Now().Unix(), 10)},
		},
	}
	for {
		out, err := c.Scan(ctx, in)
		if err != nil {
			return 0, err
		}
		n += int(out.Count)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; len(in.ExclusiveStartKey) == 0 {
			return n, nil
		}
	}
}

// edit changes an attribute of the items of a prefix.
func edit(t *testing.T, c *sdk.Client, prefix, attribute string, value types.AttributeValue) {
	t.Helper()
	items, err := scan(t.Context(), c, prefix)
	if err != nil || len(items) == 0 {
		t.Fatalf("%d items of %s, %v", len(items), prefix, err)
	}
	for _, item := range items {
		item[attribute] = value
		if _, err := c.PutItem(t.Context(), &sdk.PutItemInput{TableName: aws.String("locker"), Item: item}); err != nil {
			t.Fatal(err)
		}
	}
}

// remove removes the items of a prefix, as DynamoDB does some time after they have expired.
func remove(t *testing.T, c *sdk.Client, prefix string) {
	t.Helper()
	items, err := scan(t.Context(), c, prefix)
	if err != nil || len(items) == 0 {
		t.Fatalf("%d items of %s, %v", len(items), prefix, err)
	}
	for _, item := range items {
		key := map[string]types.AttributeValue{"id": item["id"]}
		if _, err := c.DeleteItem(t.Context(), &sdk.DeleteItemInput{TableName: aws.String("locker"), Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}
