package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

// units are what DynamoDB says that requests have consumed.
type units struct {
	mu               sync.Mutex
	requests         int
	reading, writing float64
}

// take returns what was consumed since the last call.
func (u *units) take() (requests int, reading, writing float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	requests, reading, writing = u.requests, u.reading, u.writing
	u.requests, u.reading, u.writing = 0, 0, 0
	return requests, reading, writing
}

// count asks for the units that each request of a client consumes, and adds them.
func (u *units) count(o *sdk.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("units", func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			switch p := in.Parameters.(type) {
			case *sdk.PutItemInput:
				p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
			case *sdk.BatchGetItemInput:
				p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
			}
			out, answer, err := next.HandleInitialize(ctx, in)
			u.add(in.Parameters, out.Result, err)
			return out, answer, err
		}), middleware.Before)
	})
}

// add adds a request. DynamoDB counts a unit for the reading of an item that is not there, and the units of a write
// whose condition does not hold; DynamoDB Local counts neither.
func (u *units) add(request, result any, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests++
	if errors.As(err, new(*types.ConditionalCheckFailedException)) {
		value := request.(*sdk.PutItemInput).Item["value"].(*types.AttributeValueMemberB).Value
		u.writing += float64(1 + (len(value)+100)/1024)
		return
	}
	switch r := result.(type) {
	case *sdk.PutItemOutput:
		if r != nil && r.ConsumedCapacity != nil {
			u.writing += *r.ConsumedCapacity.CapacityUnits
		}
	case *sdk.BatchGetItemOutput:
		if r != nil {
			for _, c := range r.ConsumedCapacity {
				u.reading += *c.CapacityUnits
			}
			for table, keys := range request.(*sdk.BatchGetItemInput).RequestItems {
				u.reading += float64(len(keys.Keys) - len(r.Responses[table]))
			}
		}
	}
}

// counted opens a driver as a process of its own would, and counts its requests.
func counted(tb testing.TB, prefix string) (*dynamodb.Driver, *units) {
	tb.Helper()
	u := new(units)
	c, _ := client(tb, testbed.SharedDynamoDB(tb), u.count)
	d, err := dynamodb.New(c, "locker", dynamodb.WithPrefix(prefix), dynamodb.WithCreate(), dynamodb.WithTimeout(patience))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	if err := d.Ping(context.Background()); err != nil { // the table is there
		tb.Fatal(err)
	}
	u.take()
	return d, u
}

// The costs of free locks, and of held ones, are those that the package comment states.
func TestCostsOfLocks(t *testing.T) {
	d, u := counted(t, unique("cost"))
	cycle := func() {
		t.Helper()
		r := request("free", "a")
		g, err := d.Acquire(t.Context(), r)
		if err == nil {
			err = d.Release(t.Context(), r.Hold(g.Token))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	if requests, reading, writing := u.take(); requests != 3 || reading != 1 || writing != 2 {
		t.Errorf("the first use of a name: %d requests, %v reading units, %v writing units; want 3, 1, 2", requests, reading, writing)
	}
	for range 10 {
		cycle()
	}
	if requests, reading, writing := u.take(); requests != 20 || reading != 0 || writing != 20 {
		t.Errorf("ten locks: %d requests, %v reading units, %v writing units; want 20, 0, 20", requests, reading, writing)
	}
	const n = 150
	renewals := make([]driver.Renewal, n)
	for i := range renewals {
		r := driver.Request{Name: fmt.Sprint("held", i), ID: fmt.Sprint("id", i), TTL: 30 * time.Second, Renewed: true}
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		renewals[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL}
	}
	u.take()
	for i, err := range d.RenewAll(t.Context(), renewals) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	if requests, reading, writing := u.take(); requests != 3 || reading != n || writing != 1 {
		t.Errorf("a round of renewals of %d locks: %d requests, %v reading units, %v writing units; want 3, %d, 1", n, requests, reading, writing, n)
	}
}

// So are the costs of waiting.
func TestCostsOfWaiting(t *testing.T) {
	t.Parallel()
	prefix := unique("cost")
	holder, _ := counted(t, prefix)
	l := locker.New(holder)
	defer l.Close()
	k := take(t, l, "waited for")
	waits, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*units
	var waiters sync.WaitGroup
	for i := range 3 {
		d, u := counted(t, prefix)
		all = append(all, u)
		w := locker.New(d)
		waiters.Go(func() {
			defer w.Close()
			if k, err := w.Acquire(waits, "waited for"); err == nil {
				_ = k.Release(t.Context())
			}
		})
		for {
			queue, err := l.Inspect(t.Context(), "waited for")
			if err != nil {
				t.Fatal(err)
			}
			if len(queue.Tickets) == i+2 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(3 * time.Second) // until they have slowed down
	for _, u := range all {
		u.take()
	}
	begun := time.Now()
	time.Sleep(4 * time.Second)
	took := time.Since(begun) // more on a busy machine
	for i, u := range all {
		requests, reading, writing := u.take()
		per := func(n float64) float64 { return n / took.Seconds() }
		t.Logf("waiter %d: %.1f requests, %.1f reading units, %.1f writing units a second", i, per(float64(requests)), per(reading), per(writing))
		if per(reading) > 25 || per(writing) > 1.5 {
			t.Errorf("waiter %d: more than 25 reading units or 1.5 writing units a second", i)
		}
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	waiters.Wait()
}

// So are the costs of hand-offs between two processes.
func TestCostsOfHandOffs(t *testing.T) {
	prefix := unique("cost")
	var clients [2]*locker.Client
	var all [2]*units
	for i := range clients {
		d, u := counted(t, prefix)
		clients[i], all[i] = locker.New(d), u
		defer clients[i].Close()
	}
	watcher, _ := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(prefix))
	k := take(t, clients[0], "n")
	const n = 20
	for i := range n {
		next := make(chan *locker.Lock)
		go func() {
			k, err := clients[(i+1)%2].Acquire(t.Context(), "n")
			if err != nil {
				t.Error(err)
			}
			next <- k
		}()
		for {
			queue, err := watcher.Inspect(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			if len(queue) == 2 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if i == 0 {
			all[0].take()
			all[1].take()
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if k = <-next; k == nil {
			return
		}
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	_, reading, writing := all[0].take()
	_, r, w := all[1].take()
	reading, writing = (reading+r)/n, (writing+w)/n
	t.Logf("%.1f reading units and %.1f writing units for each hand-off", reading, writing)
	if writing > 5 || reading > 10 { // the poll interval of a store that answers at once is short
		t.Errorf("more than 10 reading units or 5 writing units")
	}
}
