package zookeeper_test

import (
	"bytes"
	"encoding/binary"
	"hash/adler32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
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
