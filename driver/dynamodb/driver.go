package dynamodb

import (
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/driver/internal/setup"
)

// Defaults of options.
const (
	DefaultPrefix  = "locker"
	DefaultTimeout = 2 * time.Second
)

// latency is the longest time of a request for which the bounds hold. Most requests take some milliseconds in the same
// region, those that have to connect first some tens, and those from another continent up to a quarter of a second.
const latency = 250 * time.Millisecond

// Option changes how New makes a Driver.
type Option func(*options)

type options struct {
	prefix   string
	timeout  time.Duration
	create   bool
	replicas bool
	close    func() // closes the connections of a client that openURL has made
}

// WithPrefix sets the beginning of all keys; the default is "locker". Drivers with different prefixes have
// different locks.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout sets how long a request may take; the default is 2 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithCreate has the driver create the table if it is missing, billed by request and with the removal of old items
// enabled. That takes DynamoDB some ten seconds. Without it a missing table is an error.
func WithCreate() Option { return func(o *options) { o.create = true } }

// WithReplicas accepts a global table with eventual consistency. All programs must use the table in the same
// region: those of two regions would get the same lock at the same time.
func WithReplicas() Option { return func(o *options) { o.replicas = true } }

// Driver keeps tickets in a table of DynamoDB. See the package comment.
type Driver struct {
	*casqueue.Engine
	store *store
}

var _ fmt.Stringer = (*Driver)(nil)

// New makes a Driver on a client, which stays open when the Driver is closed. New sends no request: the driver checks
// the table when it is first used.
func New(client *sdk.Client, table string, opts ...Option) (*Driver, error) {
	o := options{prefix: DefaultPrefix, timeout: DefaultTimeout, close: func() {}}
	setup.Apply(&o, opts)
	if client == nil {
		return nil, errors.New("dynamodb: New: want a client")
	}
	if err := o.check(table); err != nil {
		return nil, fmt.Errorf("dynamodb: New: %w", err)
	}
	s := newStore(client, table, o)
	return &Driver{casqueue.New(casqueue.Options{Store: s, Prefix: o.prefix, Latency: latency, ClockError: 2*second + disagree}), s}, nil
}

// tables matches the names that DynamoDB allows, and the ARNs that name tables of other accounts.
var tables = regexp.MustCompile(`^(arn:[a-z-]+:dynamodb:[a-z0-9-]+:[0-9]+:table/)?[a-zA-Z0-9_.-]{3,255}$`)

func (o *options) check(table string) error {
	switch {
	case !tables.MatchString(table):
		return fmt.Errorf("table %q: want 3 to 255 letters, digits, and _.-", table)
	case len(o.prefix) > 128 || !utf8.ValidString(o.prefix):
		return fmt.Errorf("prefix %q: want at most 128 bytes of UTF-8", o.prefix)
	case o.timeout <= 0:
		return errors.New("want a timeout greater than zero")
	}
	return nil
}

// String names the store.
func (d *Driver) String() string { return "dynamodb " + d.store.table }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	err := d.Engine.Close()
	d.store.close()
	return err
}
