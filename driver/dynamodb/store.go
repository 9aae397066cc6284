package dynamodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/driver/internal/life"
)

const (
	mostItem = 400 * 1024 // bytes of names and values
	unit     = 1024       // bytes of an item that a writing unit pays for

	// margin is how much longer an item is kept than the engine wants, by a clock that is ahead rather than behind.
	margin = 3 * time.Second
)

// errTimeout ends a request. It may have been done.
var errTimeout = fmt.Errorf("DynamoDB has not answered in time: %w", os.ErrDeadlineExceeded)

// errBroken refuses an answer that is not DynamoDB's, though it looks like one. An item that it leaves out may exist,
// and the process that has written it may be alive.
var errBroken = errors.New("the answer is incomplete: it is not DynamoDB's")

// errThrottled is DynamoDB's answer to a batch of which it has read nothing.
var errThrottled = errors.New("DynamoDB has read none of the items: the table's or the account's throughput is exceeded")

// store is a table.
type store struct {
	client *sdk.Client
	table  string
	o      options
	clock  serverClock

	life     *life.Life
	checked  atomic.Bool // the table is as it should be
	checking life.Shared[struct{}]
}

var _ interface {
	casqueue.Store
	casqueue.Clock
} = (*store)(nil)

func newStore(client *sdk.Client, table string, o options) *store {
	return &store{client: client, table: table, o: o, life: life.New()}
}

func (s *store) close() {
	s.life.End()
	s.life.Wait()
	s.o.close()
}

// ready checks the table, once.
func (s *store) ready(ctx context.Context) error {
	switch {
	case s.life.Closed():
		return driver.ErrClosed
	case s.checked.Load():
		return nil
	}
	_, err := s.checking.Get(ctx, s.life, func() (struct{}, error) {
		err := s.check(s.life)
		s.checked.Store(err == nil)
		return struct{}{}, err
	})
	return err
}

// once has the client send a request once, whatever its settings: a conditional write that is sent again may fail
// because it has changed the item itself.
func once(o *sdk.Options) {
	o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
	if o.Credentials != nil { // else requests are not signed
		o.Credentials = provider{o.Credentials}
	}
}

// provider marks the error of credentials that the SDK does not find, or whose server does not answer: no request was
// sent, so DynamoDB has not answered. What that server answers is classified as DynamoDB's answers are: it may refuse this
// caller.
type provider struct{ aws.CredentialsProvider }

func (p provider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	found, err := p.CredentialsProvider.Retrieve(ctx)
	if !errors.As(err, new(smithy.APIError)) {
		err = driver.Unavailable(err)
	}
	return found, err
}

// do sends a request.
func (s *store) do(ctx context.Context, send func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.o.timeout)
	defer cancel()
	err := send(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return driver.Unavailable(errTimeout)
	}
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		s.checked.Store(false)
		return s.missing(missing)
	}
	return classify(err)
}

// read sends a request that changes nothing, and sends it again if this process has closed the connection below it: that
// happens now and then between net/http and the SDK (github.com/aws/aws-sdk-go-v2/issues/2737), which repairs it by the
// retries that once turns off.
func (s *store) read(ctx context.Context, send func(context.Context) error) error {
	err := s.do(ctx, send)
	if errors.Is(err, net.ErrClosed) {
		err = s.do(ctx, send)
	}
	return err
}

// Get implements casqueue.Store. It sends another request for the keys that DynamoDB leaves out.
func (s *store) Get(ctx context.Context, keys ...string) ([]casqueue.Document, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	found := make(map[string]casqueue.Document, len(keys))
	if err := s.get(ctx, keys, found); err != nil {
		return nil, err
	}
	docs := make([]casqueue.Document, len(keys))
	for i, key := range keys {
		docs[i] = found[key]
	}
	return docs, nil
}

// get adds the documents that exist to found.
func (s *store) get(ctx context.Context, keys []string, found map[string]casqueue.Document) error {
	want := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for _, key := range keys {
		want.Keys = append(want.Keys, item{idAttribute: text(key)})
	}
	for {
		var out *sdk.BatchGetItemOutput
		asked := time.Now()
		err := s.read(ctx, func(ctx context.Context) (err error) {
			out, err = s.client.BatchGetItem(ctx, &sdk.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{s.table: want}}, once)
			return err
		})
		if err != nil {
			return err
		}
		var left []item
		for _, rest := range out.UnprocessedKeys {
			left = rest.Keys
		}
		if len(left) >= len(want.Keys) {
			return refuse(want.Keys, len(keys), found)
		}
		if err := s.decodeAll(out, asked, keys, found); err != nil || len(left) == 0 {
			return err
		}
		want.Keys = left
	}
}

// refuse notes that DynamoDB has read none of the items left of a number of items: one of them can be in a hot partition.
func refuse(left []item, of int, found map[string]casqueue.Document) error {
	err := driver.Unavailable(errThrottled)
	if len(left) == of {
		return err
	}
	for _, i := range left {
		key, _ := decode(i, time.Time{})
		found[key] = casqueue.Document{Err: err}
	}
	return nil
}

// decodeAll adds the items of an answer to found. Each of them must have one of the keys. The answer has a list for the
// table even if there are none.
func (s *store) decodeAll(out *sdk.BatchGetItemOutput, asked time.Time, keys []string, found map[string]casqueue.Document) error {
	if len(out.Responses) != 1 {
		return driver.Unavailable(errBroken)
	}
	now := s.clock.note(out.ResultMetadata, asked)
	for _, items := range out.Responses {
		for _, item := range items {
			key, doc := decode(item, now)
			if !slices.Contains(keys, key) {
				return driver.Unavailable(errBroken)
			}
			found[key] = doc
		}
	}
	return nil
}

// Put implements casqueue.Store. Each content has a random version, so no earlier one has the same, even if
// DynamoDB has removed the item in between.
func (s *store) Put(ctx context.Context, key string, value []byte, read casqueue.Version, keep time.Duration) (casqueue.Version, error) {
	in := &sdk.PutItemInput{ConditionExpression: aws.String("attribute_not_exists(#a)"), ExpressionAttributeNames: map[string]string{"#a": idAttribute}}
	if read != (casqueue.Version{}) {
		in.ConditionExpression, in.ExpressionAttributeNames["#a"] = aws.String("#a = :read"), versionAttribute
		in.ExpressionAttributeValues = item{":read": encodeVersion(read)}
	}
	return s.put(ctx, in, key, value, keep)
}

// Set implements casqueue.Store.
func (s *store) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	_, err := s.put(ctx, &sdk.PutItemInput{}, key, value, keep)
	return err
}

// Time implements casqueue.Clock, without a request: the last answer had the time.
func (s *store) Time(context.Context) (casqueue.Time, error) { return s.clock.reading() }

// put writes an item.
func (s *store) put(ctx context.Context, in *sdk.PutItemInput, key string, value []byte, keep time.Duration) (casqueue.Version, error) {
	if err := s.ready(ctx); err != nil {
		return casqueue.Version{}, err
	}
	var random [versionBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	version := decodeVersion(random[:])
	in.TableName, in.Item = &s.table, encode(key, value, version)
	if now, err := s.clock.reading(); err == nil {
		in.Item[expiresAttribute] = number(int64((now.Latest + keep + margin) / time.Second))
	}
	switch n := size(in.Item); {
	case n > mostItem: // before it is compressed: so there is space for the leases of all tickets in it, whatever they are
		return casqueue.Version{}, fmt.Errorf("%w: %d bytes of at most %d", casqueue.ErrTooLarge, n, mostItem)
	case n > unit:
		in.Item[valueAttribute] = binaryOf(compress(value))
	}
	in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	err := s.do(ctx, func(ctx context.Context) error {
		asked := time.Now()
		out, err := s.client.PutItem(ctx, in, once)
		if err == nil {
			s.clock.note(out.ResultMetadata, asked)
		}
		return err
	})
	var changed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &changed) && hasVersion(changed.Item, version): // it was done: something on the way has sent it twice
		return version, nil
	case changed != nil:
		return casqueue.Version{}, casqueue.ErrChanged
	case err != nil:
		return casqueue.Version{}, err
	}
	return version, nil
}
