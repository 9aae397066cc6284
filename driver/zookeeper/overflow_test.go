package zookeeper_test

import (
	"bytes"
	"encoding/binary"
	"hash/adler32"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestSequenceOverflow makes the server count nearly 2^31 tickets in a queue, and
// then queues more: the order and the tokens stay right, although the sequences
// repeat or become negative.
func TestSequenceOverflow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	slot(t)
	srv := testbed.Zookeeper(t, testbed.Faults(), testbed.Args("dataDir="+dir, "digest.enabled=false"))
	conn := connect(t, srv.Addr())
	for _, path := range []string{"/locker", "/locker/over"} {
		if _, err := conn.Create(path, []byte{}, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	srv.Restart() // writes a snapshot
	srv.Kill()
	setCreated(t, dir, "/locker/over", math.MaxInt32-3)
	srv.Start()

	ctx := ctxFor(t, 60*time.Second)
	at := srv.URL() + "?session=" + session.String()
	holder := client(t, at)
	held := must[*locker.Lock](t)(holder.Acquire(ctx, "over"))
	const waiters = 8
	granted := make(chan int, waiters)
	locks := make(chan *locker.Lock, waiters)
	for i := range waiters {
		c := client(t, at)
		go func() {
			k, err := c.Acquire(ctx, "over")
			if err != nil {
				t.Error(err)
			}
			granted <- i
			locks <- k
		}()
		queueOf(t, holder, "over", i+2)
	}
	var sequences []string
	names, _, err := connect(t, srv.Addr()).Children("/locker/over")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		sequences = append(sequences, n[strings.LastIndexByte(n, '_')+1:])
	}
	slices.Sort(sequences)
	t.Logf("sequences %v", sequences)
	if !slices.Contains(sequences, "2147483647") {
		t.Fatal("the queue has not come to the end of the sequences")
	}
	last := held.Token()
	for i := range waiters {
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if got := <-granted; got != i {
			t.Fatalf("grant %d went to waiter %d", i, got)
		}
		held = <-locks
		if held.Token() <= last {
			t.Fatalf("token %d after %d", held.Token(), last)
		}
		last = held.Token()
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	queueOf(t, holder, "over", 0)
}

// garbling dials for a client. Of the requests that ask whether a node of that ticket is there, the server
// cannot read the first one, and says so.
type garbling struct {
	id   string
	done atomic.Bool
}

func (g *garbling) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	return &garblingConn{conn, g}, err
}

type garblingConn struct {
	net.Conn
	*garbling
}

func (c *garblingConn) Write(b []byte) (int, error) {
	const exists, check = 3, 13
	if len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == exists && bytes.Contains(b, []byte(c.id)) && !c.done.Swap(true) {
		b = slices.Clone(b)
		binary.BigEndian.PutUint32(b[8:], check) // which has more to read
	}
	return c.Conn.Write(b)
}

// TestOverflowUnknown: in a queue whose sequences have come to their end, the server does not say which transaction has created the
// node of the waiter. The waiter does not take itself for the first.
func TestOverflowUnknown(t *testing.T) {
	t.Parallel()
	at, ctx := storeURL(t), ctxFor(t, 30*time.Second)
	if err := must[*locker.Lock](t)(client(t, at).Acquire(ctx, "warm")).Release(ctx); err != nil {
		t.Fatal(err)
	}
	other := admin(t)
	held := base(at) + "/x/held-1_x_2147483640"
	if _, err := other.Multi(
		&zk.CreateRequest{Path: base(at) + "/x", Data: []byte{}, Acl: zk.WorldACL(zk.PermAll)},
		&zk.CreateRequest{Path: held, Data: []byte("{}"), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral}); err != nil {
		t.Fatal(err)
	}
	g := garbling{id: "/waits-1_x_"}
	conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, session,
		zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(g.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base(at))))
	t.Cleanup(func() { _ = d.Close() })
	r, joined := request("x", "waits-1"), make(chan struct{})
	r.Joined = func() { close(joined) }
	granted := make(chan error, 1)
	go func() {
		_, err := d.Acquire(ctx, r)
		granted <- err
	}()
	select {
	case err := <-granted:
		t.Fatalf("granted beside another holder: %v", err)
	case <-joined:
	}
	if !g.done.Load() {
		t.Error("nothing was asked: the test tests nothing")
	}
	if err := other.Delete(held, -1); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Error(err)
	}
}

// setCreated changes, in the newest snapshot, how many children a node has had:
// the server's counter for sequences.
func setCreated(t *testing.T, dir, path string, n int32) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "version-2", "snapshot.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshot: %v", err)
	}
	slices.SortFunc(files, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	file := files[len(files)-1]
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key := append(binary.BigEndian.AppendUint32(nil, uint32(len(path))), path...)
	at := bytes.Index(b, key)
	if at < 0 {
		t.Fatalf("%s has no node %s", file, path)
	}
	at += len(key)
	if data := int32(binary.BigEndian.Uint32(b[at:])); data > 0 {
		at += int(data)
	}
	at += 4 + 8 + 4*8 + 4 // data's length, ACL, czxid, mzxid, ctime, mtime, version
	binary.BigEndian.PutUint32(b[at:], uint32(n))
	const seal = 8 + 5 // checksum, and "/"
	sum := len(b) - seal
	binary.BigEndian.PutUint64(b[sum:], uint64(adler32.Checksum(b[:sum])))
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
