package sim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	smithy "github.com/aws/smithy-go/endpoints"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/dynamodb"
)

// table is a model of a table of DynamoDB, by the JSON protocol of its API: the requests that the
// driver sends. Each request has a connection of its own, so they overtake each other. Something on
// the way may send a request twice. A reading that is not consistent shows an older state. The
// clocks of DynamoDB's machines differ by less than a second, and items that have expired are
// removed at some time.
type table struct {
	s    *server
	rnd  *stream
	left *stream

	signs *signs

	mu    sync.Mutex
	items map[string]attributes
	older map[string]attributes // as items were before the last write of each
}

// attributes are those of an item, as the API has them: {"id": {"S": "…"}, …}.
type attributes map[string]map[string]string

func newTable(s *server) *table {
	return &table{s: s, rnd: newStream(s.w.seed, s.name), left: newStream(s.w.seed, s.name+" left"), signs: newSigns(s.w), items: make(map[string]attributes), older: make(map[string]attributes)}
}

func (*table) restart() bool { return false }

func (t *table) leftovers() (keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, i := range t.items {
		if !i.expired(time.Now()) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (t *table) has(name string, token uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, i := range t.items {
		value := i.document()
		if !i.expired(time.Now()) && bytes.Contains(value, fmt.Appendf(nil, `"n":%q`, name)) && bytes.Contains(value, fmt.Appendf(nil, `"k":%d,`, token)) {
			return true
		}
	}
	return false
}

// document is the document in an item, whose value may be a gzip stream.
func (i attributes) document() []byte {
	value, _ := base64.StdEncoding.DecodeString(i["value"]["B"])
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return value
	}
	document, err := io.ReadAll(z)
	if err != nil {
		panic(fmt.Sprintf("sim: DynamoDB: an item that cannot be read: %v", err))
	}
	return document
}

func (i attributes) expired(now time.Time) bool {
	at, err := strconv.ParseInt(i["expires"]["N"], 10, 64)
	return err == nil && now.Unix() > at
}

// tableDriver is deeper in checkedTable than what checks its answers.
type tableDriver struct{ *dynamodb.Driver }

type checkedTable struct {
	*contract
	tableDriver
}

// tableClient is the way of one process to DynamoDB.
type tableClient struct {
	t *table
	p *path
}

func openTable(s *server, process string) (driver.Driver, *path, error) {
	c := &tableClient{t: s.model.(*table), p: newPath(s, process)}
	client := sdk.New(sdk.Options{
		Region: "sim", Credentials: aws.AnonymousCredentials{}, // nothing is signed, which takes time
		EndpointResolverV2: c, HTTPClient: &http.Client{Transport: c},
	})
	d, err := dynamodb.New(client, "locks")
	return checkedTable{&contract{w: s.w, m: c.t, d: d, process: process, again: newStream(s.w.seed, "again").one(2)}, tableDriver{d}}, c.p, err
}

// ResolveEndpoint implements sdk.EndpointResolverV2. The SDK's own takes a sixth of a run.
func (c *tableClient) ResolveEndpoint(context.Context, sdk.EndpointParameters) (smithy.Endpoint, error) {
	return smithy.Endpoint{URI: url.URL{Scheme: "http", Host: c.t.s.name}}, nil
}

// tableReply is an answer.
type tableReply struct {
	code int
	date time.Time
	body string
}

func (r tableReply) String() string { return fmt.Sprintf("%d %s", r.code, r.body) }

// RoundTrip implements http.RoundTripper.
func (c *tableClient) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, err
	}
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	r, err := request(req.Context(), c.p, op+" "+keyOf(body)+" "+string(body), func(context.Context) tableReply {
		r := c.t.serve(op, body)
		if c.t.rnd.one(30) { // something on the way has not seen the answer
			r = c.t.serve(op, body)
		}
		return r
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: r.code, Status: strconv.Itoa(r.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Date": {r.date.UTC().Format(http.TimeFormat)}, "Content-Type": {"application/x-amz-json-1.0"}},
		Body:   io.NopCloser(strings.NewReader(r.body)), ContentLength: int64(len(r.body)),
	}, nil
}

// keyOf is the first key in a request.
func keyOf(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"S":"`))
	key, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(key)
}

// tableRequest has the fields of all requests.
type tableRequest struct {
	RequestItems map[string]struct {
		ConsistentRead bool
		Keys           []attributes
	}
	Item                      attributes
	ConditionExpression       string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues attributes
}

// serve answers one request.
func (t *table) serve(op string, body []byte) (r tableReply) {
	var in tableRequest
	if err := json.Unmarshal(body, &in); err != nil {
		panic(err)
	}
	_, _, full := t.s.state()
	t.mu.Lock()
	defer t.mu.Unlock()
	r.date = time.Now().Add(t.rnd.upTo(time.Second) - 500*time.Millisecond)
	if full.After(time.Now()) && t.rnd.one(2) && op != "DescribeTable" {
		r.refuse("ProvisionedThroughputExceededException", nil)
		return r
	}
	for key, i := range t.items {
		if i.expired(time.Now().Add(-time.Minute)) {
			delete(t.items, key)
		}
	}
	switch op {
	case "DescribeTable":
		r.answer(map[string]any{"Table": map[string]any{
			"TableName": "locks", "TableStatus": "ACTIVE", "KeySchema": []any{map[string]string{"AttributeName": "id", "KeyType": "HASH"}},
			"AttributeDefinitions": []any{map[string]string{"AttributeName": "id", "AttributeType": "S"}},
		}})
	case "BatchGetItem":
		t.get(&r, &in)
	case "PutItem":
		t.put(&r, &in)
	default:
		panic("sim: DynamoDB has no " + op)
	}
	return r
}

func (r *tableReply) answer(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	r.code, r.body = http.StatusOK, string(text)
}

func (r *tableReply) refuse(code string, old attributes) {
	r.answer(map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": "refused", "Item": old})
	r.code = http.StatusBadRequest
}

// get reads items. With mu held.
func (t *table) get(r *tableReply, in *tableRequest) {
	found, unprocessed := []attributes{}, map[string]any{}
	for _, wanted := range in.RequestItems {
		if n := len(wanted.Keys); n > 1 && t.left.one(20) { // it answers in part, if it has much to do
			part := 1 + t.left.n(n-1)
			unprocessed["locks"] = map[string]any{"ConsistentRead": wanted.ConsistentRead, "Keys": wanted.Keys[part:]}
			wanted.Keys = wanted.Keys[:part]
		}
		for _, key := range wanted.Keys {
			i, ok := t.items[key["id"]["S"]]
			if !wanted.ConsistentRead && t.rnd.one(2) {
				i, ok = t.older[key["id"]["S"]]
			}
			if ok {
				found = append(found, i)
			}
		}
	}
	r.answer(map[string]any{"Responses": map[string]any{"locks": found}, "UnprocessedKeys": unprocessed})
}

// put writes an item, if it is as the condition says. With mu held.
func (t *table) put(r *tableReply, in *tableRequest) {
	key := in.Item["id"]["S"]
	old, there := t.items[key]
	ok := true
	switch in.ConditionExpression {
	case "":
	case "attribute_not_exists(#a)":
		ok = !there
	case "#a = :read":
		ok = there && old[in.ExpressionAttributeNames["#a"]]["B"] == in.ExpressionAttributeValues[":read"]["B"]
	default:
		panic("sim: DynamoDB: " + in.ConditionExpression)
	}
	if !ok {
		r.refuse("ConditionalCheckFailedException", old)
		return
	}
	if there {
		t.older[key] = old
		t.s.w.comesBack(t.s, ids(in.Item.document(), ""), always)
	} else {
		t.s.w.mayReturn(ids(in.Item.document(), ""))
	}
	t.signs.note(key, in.Item.document(), func(string) time.Time { return time.Unix(0, 0) })
	t.items[key] = in.Item
	r.answer(struct{}{})
}
