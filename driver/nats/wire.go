package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
)

// names are the names that the bucket has in JetStream, where it is a stream: the key locker:q:ab is the subject
// $KV.BUCKET.locker.q.ab.
type names struct{ bucket, prefix string }

func (n names) stream() string              { return "KV_" + n.bucket }
func (n names) subjects() string            { return "$KV." + n.bucket + ".>" }
func (n names) subject(key string) string   { return "$KV." + n.bucket + "." + dotted(key) }
func (n names) barrier() string             { return n.subject(n.prefix + ":b") }
func (n names) get() string                 { return "$JS.API.DIRECT.GET." + n.stream() }
func (n names) api(verb string) string      { return "$JS.API.STREAM." + verb + "." + n.stream() }
func (n names) changes() string             { return "_LOCKER." + n.bucket + ".>" }
func (n names) changesOf(key string) string { return "_LOCKER." + n.bucket + "." + dotted(key) }

func dotted(key string) string { return strings.ReplaceAll(key, ":", ".") }

// mostHistory is how many revisions of a key a Key-Value bucket may keep.
const mostHistory = 64

// config returns the configuration of a bucket. Its numbers begin with the clock, in microseconds, so they grow even
// if somebody deletes the bucket and the driver makes it anew.
//
// It may keep several revisions of a key, and has one, because each write removes the one before: servers write that down,
// unlike what they do themselves to keep one revision. So none comes back after a server was killed.
func (n names) config(replicas int, now time.Time) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: n.stream(), Description: "locks", Subjects: []string{n.subjects()},
		Storage: jetstream.FileStorage, Replicas: replicas, MaxMsgsPerSubject: mostHistory, Discard: jetstream.DiscardNew,
		AllowDirect: true, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true,
		RePublish: &jetstream.RePublish{Source: n.subjects(), Destination: n.changes(), HeadersOnly: true},
		FirstSeq:  uint64(now.UnixMicro()), //nolint:gosec // after 1970
	}
}

// check refuses a bucket that loses locks, or cannot do what the driver needs.
func (n names) check(c *jetstream.StreamConfig, replicas int) error {
	var wrong string
	switch {
	case c.Replicas < replicas:
		return fmt.Errorf("it has %d replicas, and %d are asked for (nats stream edit %s --replicas)", c.Replicas, replicas, n.stream())
	case c.Storage != jetstream.FileStorage:
		wrong = "it is kept in memory"
	case c.Discard != jetstream.DiscardNew:
		wrong = "it discards old entries when it is full"
	case c.PersistMode != jetstream.DefaultPersistMode:
		wrong = "it acknowledges what it has not yet written to a file"
	case c.NoAck:
		wrong = "it acknowledges nothing"
	case c.Retention != jetstream.LimitsPolicy:
		wrong = "it keeps only what somebody consumes"
	case c.MaxAge != 0:
		wrong = "its entries have a greatest age"
	case c.SubjectDeleteMarkerTTL != 0:
		// In a cluster such a marker may come after an entry that was written, and acknowledged, in the moment in which the
		// one before expired: it removes that entry.
		return fmt.Errorf("it writes markers in place of expired entries (subject_delete_marker_ttl), and with them removes new ones "+
			"(nats stream edit %s --subject-del-markers-ttl=0s)", n.stream())
	case c.Mirror != nil || len(c.Sources) > 0:
		wrong = "its entries come from another bucket"
	case !c.AllowDirect:
		wrong = "it lacks allow_direct"
	case !c.AllowMsgTTL:
		wrong = "it lacks allow_msg_ttl"
	case !c.AllowRollup:
		wrong = "it lacks allow_rollup_hdrs"
	case c.RePublish == nil || c.RePublish.Source != n.subjects() || c.RePublish.Destination != n.changes():
		wrong = fmt.Sprintf("it does not republish %s to %s", n.subjects(), n.changes())
	case !slices.Contains(c.Subjects, n.subjects()):
		wrong = "its subjects are not " + n.subjects()
	default:
		return nil
	}
	return fmt.Errorf("%s: let the driver make the bucket, or choose another name", wrong)
}

// checkVersion refuses servers that ignore settings of a bucket that they do not know, or answer no multiGet.
func checkVersion(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 2 || major == 2 && minor < 11) {
		return fmt.Errorf("nats-server %s: want 2.11 or newer", version)
	}
	return nil
}

// headroom is more than the headers of a message need.
const headroom = 1024

// largest returns the size of the largest value. If message is zero or less, the bucket has no limit.
func largest(payload int64, message int32) int {
	if message > 0 {
		payload = min(payload, int64(message))
	}
	return int(payload) - headroom
}

// used returns whether a bucket is limited, and what it has, as a part of what it takes.
func used(b *jetstream.StreamInfo) (limited bool, part float64) {
	if most := b.Config.MaxBytes; most > 0 {
		limited, part = true, float64(b.State.Bytes)/float64(most)
	}
	if most := b.Config.MaxMsgs; most > 0 {
		limited, part = true, max(part, float64(b.State.Msgs)/float64(most))
	}
	return limited, part
}

// entry is a value that was read.
type entry struct {
	value  []byte
	number uint64
}

// multiGet is the body of a request for the newest entries of several subjects, which are read together.
func multiGet(subjects []string) []byte {
	body, _ := json.Marshal(struct { // of strings: cannot fail
		Subjects []string `json:"multi_last"`
	}{subjects})
	return body
}

var (
	errMoved  = errors.New("an entry has changed while it was read")
	errSilent = errors.New("a replica does not answer")
	errParts  = errors.New("a part of an answer is missing")
)

// answer is what has come in answer to multiGet: a message for each entry that exists, and one at the end. Servers
// that lose the connection to each other lose messages silently. Each message has the number of the one before, which
// shows a loss: an entry whose message was lost must not be taken for one that does not exist.
type answer struct {
	found map[string]entry // by subject
	last  uint64           // number
}

// add takes in a message, and reports whether it ends the answer.
func (a *answer) add(m *natsgo.Msg) (end bool, err error) {
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	rest := m.Header.Get("Nats-Num-Pending")
	switch {
	case status == "404" && description == "No Results":
		return true, nil
	case status == "404":
		return true, errMoved
	case status == "503":
		return true, natsgo.ErrNoResponders
	case status != "" && status != "204":
		return true, fmt.Errorf("NATS answers %s %s", status, description)
	case m.Header.Get(jetstream.LastSequenceHeader) != strconv.FormatUint(a.last, 10):
		return true, errParts
	case status == "204" && rest != "0":
		return true, fmt.Errorf("NATS has left out %s entries of an answer, which would be too large", rest)
	case status == "204":
		return true, nil
	}
	number, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return true, fmt.Errorf("NATS answers without a number: %w", err)
	}
	a.found[m.Header.Get(jetstream.SubjectHeader)] = entry{m.Data, number}
	a.last = number
	return false, nil
}

// The codes of JetStream that package jetstream does not name.
const (
	accountFull     jetstream.ErrorCode = 10002
	noPeers         jetstream.ErrorCode = 10005 // too few servers for the replicas
	oneServer       jetstream.ErrorCode = 10074 // a single server cannot have replicas
	tooLarge        jetstream.ErrorCode = 10054
	changedMeantime jetstream.ErrorCode = 10164 // another change of the entry is on its way
	overloaded      jetstream.ErrorCode = 10167
)

var (
	errTimeout  = fmt.Errorf("NATS has not answered in time: %w", os.ErrDeadlineExceeded)
	errNoBucket = errors.New("no server answers for the bucket")
	errNoClock  = errors.New("the bucket has no leader that says its time")
)

// failed returns the error of a request on some subjects. Its context was ctx, derived from the caller's.
func (s *session) failed(ctx, caller context.Context, err error, subjects ...string) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, casqueue.ErrChanged), errors.Is(err, casqueue.ErrTooLarge), refused(err):
		return err
	case errors.As(err, &api):
		return s.answered(api, err)
	case caller.Err() != nil:
		return caller.Err()
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		s.end() // the bucket may be gone
		return driver.Unavailable(errNoBucket)
	case ctx.Err() != nil:
		if err := s.denied(subjects...); err != nil {
			return err
		}
		return driver.Unavailable(errTimeout)
	case errors.Is(err, natsgo.ErrMaxPayload):
		return fmt.Errorf("%w: %w", casqueue.ErrTooLarge, err)
	}
	return driver.Unavailable(err)
}

// denied returns the server's last error if that forbids one of some subjects, or the subscription to answers. The
// server answers no request that it forbids.
func (s *session) denied(subjects ...string) error {
	err := s.nc.LastError()
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return nil
	}
	for _, subject := range subjects {
		if strings.Contains(err.Error(), strconv.Quote(subject)) {
			return err
		}
	}
	inbox := s.nc.NewInbox() // its prefix may be the program's
	if strings.Contains(err.Error(), `"`+inbox[:strings.LastIndex(inbox, ".")+1]) {
		return err
	}
	return nil
}

// answered returns the error of a request that JetStream has refused.
func (s *session) answered(api *jetstream.APIError, err error) error {
	switch {
	case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence, api.ErrorCode == changedMeantime:
		return casqueue.ErrChanged
	case api.ErrorCode == tooLarge:
		return fmt.Errorf("%w: %w", casqueue.ErrTooLarge, err)
	case api.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		s.end()
	case api.ErrorCode == noPeers:
		err = fmt.Errorf("%w (replicas=1 makes a bucket on one server)", err)
	case api.ErrorCode == accountFull, api.ErrorCode == overloaded: // everybody is refused, although the codes begin with 4
	case api.Code < 500, api.ErrorCode == oneServer:
		return err
	}
	return driver.Unavailable(err)
}

// refused reports whether an error refuses this caller, and nobody else.
func refused(err error) bool {
	for _, e := range []error{
		natsgo.ErrAuthorization, natsgo.ErrAuthExpired, natsgo.ErrAuthRevoked, natsgo.ErrAccountAuthExpired,
		natsgo.ErrPermissionViolation, natsgo.ErrNkeysNotSupported, natsgo.ErrSecureConnWanted, natsgo.ErrSecureConnRequired,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
