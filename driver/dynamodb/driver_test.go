package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: 10 * time.Second, Renewed: true}
}

// A server that is killed and started again has all locks.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	srv := testbed.DynamoDB(t, testbed.Faults())
	a, b := process(t, srv.URL()), process(t, srv.URL())
	k := take(t, a, "killed", locker.WithTTL(20*time.Second))
	srv.Restart()
	if _, err := b.TryAcquire(t.Context(), "killed"); !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("after the restart: %v", err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if next := take(t, b, "killed"); next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
}

// An expired item counts as none, though DynamoDB still has it: a process that only tries gets the lock of a process
// that died long ago. Its token is greater, even when DynamoDB has removed the item.
func TestExpiredItem(t *testing.T) {
	t.Parallel()
	prefix := unique("expired")
	srv := testbed.SharedDynamoDB(t)
	c, _ := client(t, srv)
	dead, _ := made(t, srv, dynamodb.WithPrefix(prefix))
	g, err := dead.Acquire(t.Context(), request("n", "dead"))
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	items, err := scan(t.Context(), c, prefix+":q:")
	if err != nil || len(items) != 1 || expires(items[0]).Before(time.Now().Add(60*time.Second)) {
		t.Fatalf("%d items, the first expires %v: %v", len(items), expires(items[0]), err)
	}

	now := &types.AttributeValueMemberN{Value: strconv.FormatInt(time.Now().Add(30*time.Second).Unix(), 10)}
	edit(t, c, prefix+":q:", "expires", now)
	early, _ := made(t, srv, dynamodb.WithPrefix(prefix))
	if _, err := early.Acquire(t.Context(), request("n", "early")); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
		t.Errorf("acquire before the item has expired: %v", err)
	}
	now.Value = strconv.FormatInt(time.Now().Add(-2*time.Second).Unix(), 10)
	edit(t, c, prefix+":q:", "expires", now)
	late, _ := made(t, srv, dynamodb.WithPrefix(prefix))
	next, err := late.Acquire(t.Context(), request("n", "late"))
	if err != nil || next.Token <= g.Token {
		t.Fatalf("token %d after %d, %v", next.Token, g.Token, err)
	}
	if err := late.Release(t.Context(), driver.Hold{Name: "n", ID: "late", Token: next.Token}); err != nil {
		t.Error(err)
	}

	remove(t, c, prefix+":q:")
	last, err := late.Acquire(t.Context(), request("n", "last"))
	if err != nil || last.Token <= next.Token {
		t.Errorf("token %d after %d, %v", last.Token, next.Token, err)
	}
}

// Neither the clock of this machine nor that of the writer decides whether an item has expired.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	prefix := unique("clocks")
	srv := testbed.SharedDynamoDB(t)
	wrong := func(by time.Duration) *dynamodb.Driver {
		d, w := made(t, srv, dynamodb.WithPrefix(prefix))
		w.does(shifted(by))
		return d
	}
	// To the driver, a server's clock that is ahead is the same as a machine's clock that is behind.
	for i, by := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		name := fmt.Sprint("n", i)
		if _, err := wrong(by).Acquire(t.Context(), request(name, "a")); err != nil {
			t.Fatal(err)
		}
		if _, err := wrong(by).Acquire(t.Context(), request(name, "b")); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
			t.Errorf("a clock that differs by %v: %v", by, err)
		}
	}
}

// Versions are never used again: an item that DynamoDB has removed, and another process has made anew, has another
// version than the one that was read before.
func TestItemMadeAnew(t *testing.T) {
	t.Parallel()
	prefix := unique("anew")
	srv := testbed.SharedDynamoDB(t)
	c, _ := client(t, srv)
	a, _ := made(t, srv, dynamodb.WithPrefix(prefix))
	b, _ := made(t, srv, dynamodb.WithPrefix(prefix))
	r := request("n", "a")
	g, err := a.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Release(t.Context(), r.Hold(g.Token)); err != nil { // the driver a knows the item now
		t.Fatal(err)
	}
	remove(t, c, prefix+":q:")
	r.ID = "b"
	if g, err = b.Acquire(t.Context(), r); err == nil {
		err = b.Renew(t.Context(), r.Hold(g.Token), time.Minute) // the second content, as is the one that a knows
	}
	if err != nil {
		t.Fatal(err)
	}
	r.ID = "c"
	if _, err := a.Acquire(t.Context(), r); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
		t.Errorf("acquire of what another process holds: %v", err)
	}
}

// A queue that fills its item refuses tickets, with the reason, and works on.
func TestItemTooLarge(t *testing.T) {
	prefix := unique("full")
	d, _ := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(prefix))
	r := driver.Request{Name: "full", ID: "holder", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	const n = 700 // more than fit
	waits, cancel := context.WithCancel(t.Context())
	errs := make(chan error, n)
	var waiters sync.WaitGroup
	for i := range n {
		waiters.Go(func() {
			w := driver.Request{Name: "full", ID: fmt.Sprint(i), TTL: time.Minute, Wait: true, Note: strings.Repeat("n", 512)}
			_, err := d.Acquire(waits, w)
			errs <- err
		})
	}
	if err := <-errs; driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) || !strings.Contains(fmt.Sprint(err), "the queue is full") {
		t.Errorf("refused with %v", err)
	}
	queue, err := d.Inspect(t.Context(), "full")
	if err != nil || len(queue) < 300 || len(queue) > n {
		t.Errorf("%d tickets, %v", len(queue), err)
	}
	if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
	cancel()
	waiters.Wait()
}

// A missing table is no outage: the error says how to create it, or create=true does. A table that another process
// creates can be used at once, and the driver notices when the table is removed.
func TestTableMissing(t *testing.T) {
	t.Parallel()
	srv := testbed.DynamoDB(t, testbed.Faults())
	c, _ := client(t, srv)
	without, with := strings.Replace(srv.URL(), "create=true&", "", 1), srv.URL()
	l := process(t, without)
	missing := func() {
		t.Helper()
		_, err := l.TryAcquire(t.Context(), "a")
		if err == nil || errors.Is(err, locker.ErrUnavailable) ||
			!strings.Contains(err.Error(), "aws dynamodb create-table --table-name locker ") || !strings.Contains(err.Error(), "eu-west-1") {
			t.Errorf("without a table: %v", err)
		}
	}
	missing()
	if err := l.Ping(t.Context()); err == nil {
		t.Error("ping: no error")
	}
	var creators sync.WaitGroup
	var creator *locker.Client
	for i := range 4 { // at the same time
		creator = process(t, with)
		p := creator
		creators.Go(func() {
			if _, err := p.TryAcquire(t.Context(), fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	creators.Wait()
	if err := take(t, l, "a").Release(t.Context()); err != nil {
		t.Error(err)
	}
	ttl, err := c.DescribeTimeToLive(t.Context(), &sdk.DescribeTimeToLiveInput{TableName: aws.String("locker")})
	if err != nil || ttl.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusEnabled || *ttl.TimeToLiveDescription.AttributeName != "expires" {
		t.Errorf("old items are not removed: %v, %v", ttl, err)
	}
	if _, err := c.DeleteTable(t.Context(), &sdk.DeleteTableInput{TableName: aws.String("locker")}); err != nil {
		t.Fatal(err)
	}
	missing()
	if err := take(t, creator, "a").Release(t.Context()); err != nil { // the driver creates it once more
		t.Error(err)
	}
}

// A table with another key is refused.
func TestTableOfOthers(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedDynamoDB(t)
	c, _ := client(t, srv)
	for table, key := range map[string][]types.KeySchemaElement{
		"other-name": {{AttributeName: aws.String("key"), KeyType: types.KeyTypeHash}},
		"sort-key":   {{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}, {AttributeName: aws.String("sort"), KeyType: types.KeyTypeRange}},
	} {
		table = unique(table)
		in := &sdk.CreateTableInput{TableName: &table, KeySchema: key, BillingMode: types.BillingModePayPerRequest}
		for _, k := range key {
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: k.AttributeName, AttributeType: "S"})
		}
		if _, err := c.CreateTable(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		l := process(t, strings.Replace(srv.URL(), "//locker?", "//"+table+"?", 1))
		if _, err := l.TryAcquire(t.Context(), "a"); err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "partition key") {
			t.Errorf("%s: %v", table, err)
		}
	}
}

// An item that is none of locker's is left alone, and the locks that are renewed with it are kept.
func TestItemOfOthers(t *testing.T) {
	t.Parallel()
	prefix := unique("others")
	srv := testbed.SharedDynamoDB(t)
	c, _ := client(t, srv)
	d, _ := made(t, srv, dynamodb.WithPrefix(prefix))
	r := request("n", "a")
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, c, prefix+":q:", "value", &types.AttributeValueMemberS{Value: "another"})
	fine := request("fine", "b")
	next, err := d.Acquire(t.Context(), fine)
	if err != nil {
		t.Fatal(err)
	}
	errs := d.RenewAll(t.Context(), []driver.Renewal{{Hold: r.Hold(g.Token), TTL: time.Minute}, {Hold: fine.Hold(next.Token), TTL: time.Minute}})
	if err := errs[0]; err == nil || errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "not a document of locker") {
		t.Errorf("renew: %v", err)
	}
	if errs[1] != nil {
		t.Errorf("renewed with it: %v", errs[1])
	}
	r.ID = "c"
	if _, err := d.Acquire(t.Context(), r); err == nil || errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), "not a document of locker") {
		t.Errorf("acquire: %v", err)
	}
}

// Close leaves the program's client open, and a second Close does nothing.
func TestClose(t *testing.T) {
	t.Parallel()
	c, _ := client(t, testbed.SharedDynamoDB(t))
	d, err := dynamodb.New(c, "locker", nil, dynamodb.WithCreate(), dynamodb.WithTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Ping(t.Context()), d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if err := d.Ping(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("ping after Close: %v", err)
	}
	if _, err := c.ListTables(t.Context(), &sdk.ListTablesInput{}); err != nil {
		t.Error(err)
	}
}

// Close ends the connections of a driver that was opened by URL.
func TestCloseOfURL(t *testing.T) {
	url := testbed.SharedDynamoDB(t).URL() + "&timeout=" + patience.String()
	others := goleak.IgnoreCurrent()
	d, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.(driver.Pinger).Ping(t.Context()), d.Close()); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, others)
}

// A driver uses a table that another process creates at the same time.
func TestCreatedByOthers(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedDynamoDB(t)
	if d, _ := made(t, srv); d.Ping(t.Context()) != nil {
		t.Fatal("there is no table")
	}
	d, w := made(t, srv)
	var once sync.Once
	w.does(func(_ string, _ []byte, send func() (*http.Response, error)) (r *http.Response, err error) {
		once.Do(func() { r, err = refusal(400, "ResourceNotFoundException") })
		if r == nil {
			r, err = send()
		}
		return r, err
	})
	if err := d.Ping(t.Context()); err != nil || w.count("CreateTable") != 1 || w.count("UpdateTimeToLive") != 0 {
		t.Errorf("%v; %d tables created, %d changed", err, w.count("CreateTable"), w.count("UpdateTimeToLive"))
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	c := sdk.New(sdk.Options{Region: "eu-west-1"})
	for what, err := range map[string]error{
		"no client":     second(dynamodb.New(nil, "locks")),
		"no table":      second(dynamodb.New(c, "")),
		"a short name":  second(dynamodb.New(c, "ab")),
		"a wrong name":  second(dynamodb.New(c, "lo cks")),
		"a long prefix": second(dynamodb.New(c, "locks", dynamodb.WithPrefix(strings.Repeat("x", 200)))),
		"no text":       second(dynamodb.New(c, "locks", dynamodb.WithPrefix("\xff"))), // JSON would change it
		"no time":       second(dynamodb.New(c, "locks", dynamodb.WithTimeout(0))),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	d, err := dynamodb.New(c, "arn:aws:dynamodb:eu-west-1:123456789012:table/locks")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func second(_ *dynamodb.Driver, err error) error { return err }
