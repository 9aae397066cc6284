package sim

import (
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/internal/testbed"
)

// TestModelOfRedis: the model answers as a real server does, to each command by itself, in a
// script, and in a script that catches errors.
func TestModelOfRedis(t *testing.T) {
	c, err := net.Dial("tcp", testbed.Redis(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := newNode(&server{w: &world{begun: time.Now()}, name: "redis"})
	n.rate, n.ahead = 1, 0
	model := &redisLink{n: n, channels: make(map[string]bool)}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := newStream(seed, "commands")
	verbs := slices.DeleteFunc(slices.Sorted(maps.Keys(redisCommands)), func(verb string) bool { return verb == "TIME" })
	for i := range 5000 {
		args := command(rnd, pick(rnd, verbs...))
		script := pick(rnd, "", "return redis.call(unpack(ARGV))", "local a = redis.pcall(unpack(ARGV)) return {type(a), a}")
		if script != "" {
			args = append([]string{"EVAL", script, "0"}, args...)
		}
		req := redisRequest(args)
		want, err := redisAnswer(c, req)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(model.serve(req)); !alike(got, want) {
			t.Fatalf("command %d, %q: %q, want %q", i, args, got, want)
		}
	}
}

// command draws a command on a few keys.
func command(rnd *stream, verb string) []string {
	key := func() string { return "locker:{" + strconv.Itoa(rnd.n(4)) + "}" }
	word := func() string { return pick(rnd, "a", "b", "c", "") }
	score := func() string { return pick(rnd, "1", "2", "1767225600123456", "-3", "0.5") }
	bound := func() string { return pick(rnd, "-inf", "inf", "(1", "1", "2", "(1767225600123456") }
	index := func() string { return strconv.Itoa(rnd.n(7) - 3) }
	switch args := []string{verb, key()}; verb {
	case "SCAN":
		return []string{verb, "0", "MATCH", "locker:{*", "COUNT", "1000"}
	case "SET":
		return append(append(args, word()), pick(rnd, nil, []string{"NX"}, []string{"GET"}, []string{"PX", "100000"}, []string{"PX", "0"})...)
	case "GETRANGE":
		return append(args, "0", strconv.Itoa(rnd.n(3)))
	case "DEL", "EXISTS":
		return append(args, args[1], key())
	case "PEXPIRE":
		return append(args, pick(rnd, "100000", "200000", "0", "1.5"))
	case "PUBLISH", "HGET", "HDEL", "ZREM", "ZSCORE":
		return append(args, word())
	case "HSET":
		return append(args, word(), word())
	case "ZADD":
		if rnd.one(3) {
			args = append(args, "NX")
		}
		return append(args, score(), word())
	case "ZCOUNT":
		return append(args, bound(), bound())
	case "ZRANGEBYSCORE":
		return append(append(args, bound(), bound()), pick(rnd, nil, []string{"WITHSCORES"}, []string{"WITHSCORES", "LIMIT", "0", "1"})...)
	case "ZRANGE", "ZREVRANGE":
		return append(append(args, index(), index()), pick(rnd, nil, []string{"WITHSCORES"})...)
	default:
		return args
	}
}

// redisRequest writes a request in RESP.
func redisRequest(args []string) []byte {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	return encode(nil, all)
}

// redisAnswer sends a request, and returns the answer.
func redisAnswer(c net.Conn, req []byte) (string, error) {
	const end = "*2\r\n$4\r\nECHO\r\n$3\r\nend\r\n"
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(append(slices.Clone(req), end...)); err != nil {
		return "", err
	}
	var got strings.Builder
	for !strings.HasSuffix(got.String(), "$3\r\nend\r\n") {
		if _, err := io.CopyN(&got, c, 1); err != nil {
			return "", err
		}
	}
	return strings.TrimSuffix(got.String(), "$3\r\nend\r\n"), nil
}

// alike reports whether two answers are the same, but for what an error says of the script, the
// order of a scan, and what is left of leases.
func alike(a, b string) bool {
	parts := func(s string) []string {
		s, _, _ = strings.Cut(s, " script: ")
		lines := strings.Split(s, "\r\n")
		slices.Sort(lines)
		return lines
	}
	return slices.EqualFunc(parts(a), parts(b), func(x, y string) bool {
		if strings.HasPrefix(x, "-ERR") && strings.HasPrefix(y, "-ERR") || strings.HasPrefix(x, "ERR ") && strings.HasPrefix(y, "ERR ") {
			return true
		}
		n, err1 := strconv.ParseInt(strings.TrimPrefix(x, ":"), 10, 64)
		m, err2 := strconv.ParseInt(strings.TrimPrefix(y, ":"), 10, 64)
		near := err1 == nil && err2 == nil && min(n, m) > 10_000 && max(n, m)-min(n, m) < 50_000
		return x == y || near
	})
}

// The tricks that concern writes take what go-redis sends for that.
func TestWritesOfRedis(t *testing.T) {
	for what, want := range map[string]bool{
		"*5\r\n$7\r\nevalsha\r\n$1\r\nh\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\na\r\n": true,
		"*3\r\n$4\r\neval\r\n$1\r\ns\r\n$1\r\n0\r\n":                          true,
		"*2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n":                                false,
		"*1\r\n$4\r\nping\r\n":                                                false,
	} {
		if got := writes(what); got != want {
			t.Errorf("%q: %v", what, got)
		}
	}
}
