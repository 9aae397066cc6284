package dynamodb

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/driver/internal/life"
)

// The attributes of an item.
const (
	idAttribute      = "id"      // text, the partition key
	valueAttribute   = "value"   // binary: the document, or the gzip stream of one that is long
	versionAttribute = "version" // binary, random: a new one with each write
	expiresAttribute = "expires" // seconds since 1970 by DynamoDB's clock
)

const versionBytes = 16

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue     { return &types.AttributeValueMemberS{Value: s} }
func binaryOf(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }
func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func encode(key string, value []byte, v casqueue.Version) item {
	return item{idAttribute: text(key), valueAttribute: binaryOf(value), versionAttribute: encodeVersion(v)}
}

// decode returns the document in an item, as of now by DynamoDB's clock. If the item is none of locker's, the engine
// refuses that document, and can still use the others that were read with it.
func decode(i item, now time.Time) (key string, d casqueue.Document) {
	id, ok := i[idAttribute].(*types.AttributeValueMemberS)
	if !ok {
		return "", d // the key of no document
	}
	none := casqueue.Document{Value: []byte("none of locker's")}
	value, ok1 := i[valueAttribute].(*types.AttributeValueMemberB)
	version, ok2 := i[versionAttribute].(*types.AttributeValueMemberB)
	if !ok1 || !ok2 || len(version.Value) != versionBytes {
		return id.Value, none
	}
	expanded, err := expand(value.Value)
	if err != nil {
		return id.Value, none
	}
	return id.Value, casqueue.Document{Value: expanded, Version: decodeVersion(version.Value), Expired: expired(i, now)}
}

// compressors has gzip.Writers, each of which takes most of a megabyte.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compress returns the gzip stream of a value, or the value itself if that is not longer.
func compress(value []byte) []byte {
	var b bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&b)
	_, _ = z.Write(value) // to memory: it never fails
	_ = z.Close()
	if b.Len() >= len(value) {
		return value
	}
	return b.Bytes()
}

// gzipped is what a gzip stream begins with, and no document.
var gzipped = []byte{0x1f, 0x8b}

// expand returns the value that compress was given. It refuses a damaged stream, and one that is empty, which would be
// taken for a queue without tickets.
func expand(value []byte) ([]byte, error) {
	if !bytes.HasPrefix(value, gzipped) {
		return value, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, err
	}
	expanded, err := io.ReadAll(io.LimitReader(z, mostItem+1))
	if err == nil && (len(expanded) == 0 || len(expanded) > mostItem) {
		err = fmt.Errorf("it expands to %d bytes or more", len(expanded))
	}
	return expanded, err
}

// expired reports whether an item need not be kept any longer. An item without a time is kept for ever.
func expired(i item, now time.Time) bool {
	expires, ok := i[expiresAttribute].(*types.AttributeValueMemberN)
	if !ok {
		return false
	}
	at, err := strconv.ParseInt(expires.Value, 10, 64)
	return err == nil && now.Unix() > at
}

func encodeVersion(v casqueue.Version) types.AttributeValue {
	return binaryOf(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, v.Era), v.Number))
}

func decodeVersion(b []byte) casqueue.Version {
	return casqueue.Version{Era: binary.BigEndian.Uint64(b), Number: binary.BigEndian.Uint64(b[8:])}
}

func hasVersion(i item, v casqueue.Version) bool {
	b, ok := i[versionAttribute].(*types.AttributeValueMemberB)
	return ok && len(b.Value) == versionBytes && decodeVersion(b.Value) == v
}

// size returns the size of an item as DynamoDB counts it, or a little more.
func size(i item) (n int) {
	for name, value := range i {
		n += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			n += len(v.Value)
		case *types.AttributeValueMemberB:
			n += len(v.Value)
		case *types.AttributeValueMemberN:
			n += len(v.Value) + 1
		}
	}
	return n
}

// serverClock is DynamoDB's clock, from the times in its answers. The clock of this machine only counts the time since
// the request was sent: the answer may come long after DynamoDB sent it, if the machine was suspended.
type serverClock struct {
	mu     sync.Mutex
	server time.Time
	at     time.Time // when that was, here, or earlier
}

// note notes the time of an answer to what was asked then, and returns it; zero if the answer has none.
func (c *serverClock) note(answer middleware.Metadata, asked time.Time) time.Time {
	server, ok := awsmiddleware.GetServerTime(answer)
	if ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.server, c.at = server, asked
	}
	return server
}

const (
	second   = time.Second // what the time in an answer may leave out
	disagree = time.Second // by how much the clocks of DynamoDB's machines may differ, which are kept within milliseconds
)

// errNoTime says that there was no answer with a time.
var errNoTime = errors.New("no answer of DynamoDB had a time")

// reading returns what the clock shows. It showed the time in the last answer before, and cannot have advanced more
// since that was requested than the clocks of this machine.
func (c *serverClock) reading() (t casqueue.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return t, errNoTime
	}
	t.Earliest = time.Duration(c.server.UnixNano())
	t.Latest = t.Earliest + life.Elapsed(c.at, time.Now()) + second + disagree
	t.Clock = "dynamodb"
	return t, nil
}

// temporary are the errors after which another try may help: throttling, a server that has failed, a connection.
var temporary = retry.IsErrorRetryables(retry.DefaultRetryables)

// classify marks an error that means that DynamoDB has not answered, or refuses everybody.
func classify(err error) error {
	var conflict *types.ReplicatedWriteConflictException
	var broken *smithy.DeserializationError
	if errors.As(err, &conflict) || errors.As(err, &broken) || temporary.IsErrorRetryable(err) == aws.TrueTernary {
		return driver.Unavailable(err)
	}
	return err
}
