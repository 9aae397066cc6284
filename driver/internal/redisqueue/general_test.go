package redisqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/internal/testbed"
)

// general returns a script without the cases of a mutex that come first in it.
func general(t *testing.T, s *Script) *Script {
	t.Helper()
	begin := strings.Index(s.source, "-- The ")
	for begin >= 0 && !strings.Contains(strings.SplitN(s.source[begin:], "\n", 2)[0], "cases of a mutex") {
		begin += 1 + strings.Index(s.source[begin+1:], "-- The ")
	}
	end := strings.Index(s.source, "-- FOREIGN stands for") // of value.lua
	if begin < 0 || end < begin {
		t.Fatalf("%s has no cases of a mutex", s.name)
	}
	head := s.source[:begin]
	if s.name == "acquire" {
		head += "local exclusive = want == 'x' or want == 'xw'\n"
	}
	if strings.Contains(s.source[begin:end], "\nlocal time = ") { // declared after these cases
		head += "local time = call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n"
	}
	return newScript(s.name, head+s.source[end:])
}

// twin has two queues: one kept by the scripts as they are, and one by the general rule
// alone.
type twin struct {
	t       *testing.T
	client  *redis.Client
	redlock bool
	scripts [2]map[string]*Script
	joined  map[string]int // how many tickets runs for several have answered for, by script
}

func newTwin(t *testing.T, redlock bool, scripts ...*Script) *twin {
	t.Helper()
	w := &twin{t: t, client: redis.NewClient(&redis.Options{Addr: testbed.Redis(t).Addr()}), redlock: redlock, joined: make(map[string]int)}
	t.Cleanup(func() { _ = w.client.Close() })
	for i := range w.scripts {
		w.scripts[i] = make(map[string]*Script)
		for _, s := range scripts {
			name := strings.TrimPrefix(s.name, "redlock_")
			w.scripts[i][name] = s
			if i == 1 && (name == "acquire" || name == "release") {
				w.scripts[i][name] = general(t, s)
			}
		}
	}
	return w
}

// run runs a script on both queues, and returns both answers, without the parts that
// depend on the time.
func (w *twin) run(script string, second string, args ...any) [2]string {
	w.t.Helper()
	var answers [2]string
	for i := range answers {
		answers[i] = w.runOn(i, w.scripts[i][script], second, args...)
	}
	return answers
}

// several runs a script on both queues: on one for some tickets in one run, and alone for those that it leaves out, and on the other
// for one ticket after the other.
func (w *twin) several(script string, second string, each ...[]any) [2]string {
	w.t.Helper()
	s := w.scripts[0][script]
	list, _ := w.eval(0, s.several, second, slices.Concat(each...)...).([]any)
	if len(list) != len(each) {
		w.t.Fatalf("%s for %d tickets answers %v", script, len(each), list)
	}
	var answers [2]string
	for i, args := range each {
		if list[i] != nil {
			if args[0] != "" {
				w.joined[script]++
			}
			answers[0] += " " + w.plain(0, s, list[i], args)
			answers[1] += " " + w.runOn(1, w.scripts[1][script], second, args...)
		}
	}
	for i, args := range each {
		if list[i] == nil {
			for k := range answers {
				answers[k] += " " + w.runOn(k, w.scripts[k][script], second, args...)
			}
		}
	}
	return answers
}

func (w *twin) eval(i int, s *Script, second string, args ...any) any {
	w.t.Helper()
	keys := []string{fmt.Sprintf("test:{%d}", i)}
	if second != "" {
		keys = append(keys, fmt.Sprint(second, i))
	}
	v, err := redis.NewScript(s.source).Run(w.t.Context(), w.client, keys, args...).Result()
	if err != nil {
		w.t.Fatalf("%s %v: %v", s.name, args, err)
	}
	return v
}

func (w *twin) runOn(i int, s *Script, second string, args ...any) string {
	w.t.Helper()
	return w.plain(i, s, w.eval(i, s, second, args...), args)
}

// plain returns an answer without the parts that depend on the time.
func (w *twin) plain(i int, s *Script, v any, args []any) string {
	w.t.Helper()
	list, isList := v.([]any)
	switch {
	case strings.HasSuffix(s.name, "heartbeat"):
		return fmt.Sprint(list[2:])
	case isList && w.redlock && list[0] == int64(0):
		return fmt.Sprint(list[0], list[2])
	case isList:
		if len(list) == 4 && !w.redlock { // the general rule does not say which ticket is directly before
			w.follows(fmt.Sprintf("test:{%d}:x", i), fmt.Sprint(args[0]), list[3])
			list = list[:3]
		}
		return fmt.Sprint(len(list), list[0] == int64(1), list[0] == int64(2))
	default:
		if n, ok := v.(int64); ok {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("%T", v)
	}
}

// follows checks that a ticket in a queue is directly behind another one.
func (w *twin) follows(queue, id string, before any) {
	w.t.Helper()
	ctx := w.t.Context()
	rank := w.client.ZRank(ctx, queue, id).Val()
	if there := w.client.ZRange(ctx, queue, rank-1, rank-1).Val(); rank == 0 || !slices.Equal(there, []string{fmt.Sprint(before)}) {
		w.t.Fatalf("%s is said to be behind %v; the queue: %v", id, before, w.client.ZRange(ctx, queue, 0, -1).Val())
	}
}

// state says who holds and who waits in one of the queues.
func (w *twin) state(i int) string {
	ctx, key := w.t.Context(), fmt.Sprintf("test:{%d}", i)
	end := func(s string) string { return key + ":" + s }
	if w.redlock {
		end = func(s string) string { return key + ":r" + s }
	}
	p := w.client.Pipeline()
	whole, begin := p.Get(ctx, key), p.GetRange(ctx, key, 0, 30)
	released := p.ZRange(ctx, key+":d", 0, -1)
	rounds := make([]*redis.StringCmd, len(tickets))
	for i, id := range tickets {
		rounds[i] = p.Get(ctx, key+":rg:"+id)
	}
	records, lives := p.HKeys(ctx, end("t")), p.ZRange(ctx, end("p"), 0, -1)
	sets := []string{"x", "s", "h"}
	ids, left := make([]*redis.StringSliceCmd, len(sets)), make([]*redis.DurationCmd, len(sets))
	for i, set := range sets {
		ids[i], left[i] = p.ZRange(ctx, end(set), 0, -1), p.PTTL(ctx, end(set))
	}
	_, _ = p.Exec(ctx) // some keys are of another type, or not there

	tombstones := released.Val()
	for i, id := range tickets {
		if round := rounds[i].Val(); round != "" {
			tombstones = append(tombstones, id+" "+round)
		}
	}
	value, _, _ := strings.Cut(strings.Replace(whole.Val(), "locker ", "locker_", 1), " ") // the token is a time
	if w.redlock {
		value = begin.Val() // with the number
	}
	s := fmt.Sprintf("holder %q", value)
	slices.Sort(tombstones)
	s += fmt.Sprint(" tombstones ", tombstones)
	for i, set := range sets {
		s += fmt.Sprintf(" %s %v", set, ids[i].Val())
		if len(ids[i].Val()) > 0 && left[i].Val() <= 0 {
			s += " for ever"
		}
		for _, id := range ids[i].Val() { // what nobody needs any more may stay until it expires
			if !slices.Contains(records.Val(), id) {
				s += " without a record of " + id
			}
			if process := "p" + string('0'+(id[1]-'0')%3); set != "h" && !slices.Contains(lives.Val(), process) {
				s += " without a life of " + process
			}
		}
	}
	return s
}

func (w *twin) same(what string, answers [2]string) {
	w.t.Helper()
	if answers[0] != answers[1] {
		w.t.Fatalf("%s: answered %s, by the general rule %s", what, answers[0], answers[1])
	}
	if a, b := w.state(0), w.state(1); a != b {
		w.t.Fatalf("%s:\n         %s,\nby the general rule %s", what, a, b)
	}
}

// tickets are the tickets of a game, of three processes. The first six are exclusive.
var tickets = []string{"x0", "x1", "x2", "x3", "x4", "x5", "s6", "s7", "l8", "l9"}

func limitOf(id string) int { return map[byte]int{'l': 2}[id[0]] }

// TestCasesOfAMutex: the cases of a mutex that come first in the scripts do what the
// general rule would do, in every state of the queue.
func TestCasesOfAMutex(t *testing.T) {
	t.Parallel()
	w, random := newTwin(t, false, Acquire, Release, KeepAlive, Break), testbed.Rand(t)
	sub := w.client.Subscribe(t.Context(), "p0", "p1") // p2 is dead, or connecting again
	t.Cleanup(func() { _ = sub.Close() })
	for range 2 {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for game := range 60 {
		w.client.FlushAll(t.Context())
		some := tickets[:6+game%5]
		for range 40 {
			n := random.IntN(len(some))
			id := some[n]
			record := fmt.Sprintf("p%d %d 0 ", n%3, limitOf(id))
			kind := Kind(id[0] != 'x')
			switch dice := random.IntN(20); {
			case dice < 8:
				w.same("queue "+id, w.run("acquire", "fence", id, 60_000, record, kind+"w"))
			case dice < 11:
				w.same("try "+id, w.run("acquire", "fence", id, 60_000, record, kind))
			case dice < 13 && n < 6: // n and another one of its process
				calls := [][]any{{id, 60_000, record, "xw"}, {some[(n+3)%6], 60_000, record, "xw"}, {"", 60_000, record, "xw"}} // the last caller has left
				random.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
				w.same("queue "+id+" and others", w.several("acquire", "fence", calls...))
			case dice < 15 && n < 6 && w.client.ZScore(t.Context(), "test:{0}:p", fmt.Sprint("p", n%3)).Val() != lapsed: // else the first release removes the other
				other := some[(n+3)%6]
				w.same("release "+id+" and "+other, w.several("release", "", []any{id, 0}, []any{other, random.IntN(2)}))
			case dice < 18:
				w.same("release "+id, w.run("release", "", id, 0))
			case dice < 19:
				w.same("release late "+id, w.run("release", "", id, 1+random.IntN(2)))
			case random.IntN(2) == 0:
				w.lapse(n % 3)
			default:
				w.same("heartbeat "+id, w.run("heartbeat", "", fmt.Sprintf("p%d", n%3), kind+id))
			}
		}
	}
	for _, script := range []string{"acquire", "release"} {
		if w.joined[script] == 0 {
			t.Errorf("%s: runs for several have answered for no ticket", script)
		}
	}
}

const lapsed = 1

// lapse makes a process expire, as if it had sent no heartbeat for too long.
func (w *twin) lapse(process int) {
	for i := range w.scripts {
		end := ":p"
		if w.redlock {
			end = ":rp"
		}
		w.client.ZAddXX(w.t.Context(), fmt.Sprintf("test:{%d}", i)+end, redis.Z{Score: lapsed, Member: fmt.Sprint("p", process)})
	}
}

// TestLapsedProcess: a process whose sign of life comes too late, with another ticket,
// does not get its old tickets back.
func TestLapsedProcess(t *testing.T) {
	t.Parallel()
	for _, redlock := range []bool{false, true} {
		scripts := []*Script{Acquire, Release}
		number, end := time.Now().Add(time.Hour).UnixMicro(), ":x"
		if redlock {
			scripts, end = []*Script{RedlockAcquire, RedlockRelease}, ":rx"
		}
		w := newTwin(t, redlock, scripts...)
		acquire := func(id string, process int) {
			if number++; redlock {
				w.run("acquire", "fences", id, number, 60_000, "xwn", "bucket", 1, fmt.Sprintf("p%d 0 0 ", process))
				return
			}
			w.run("acquire", "fence", id, 60_000, fmt.Sprintf("p%d 0 0 ", process), "xw")
		}
		acquire("holds", 0)
		acquire("early", 1)
		acquire("other", 2)
		w.lapse(1)
		acquire("late", 1)
		for i := range w.scripts {
			if got := w.client.ZRange(t.Context(), fmt.Sprintf("test:{%d}", i)+end, 0, -1).Val(); fmt.Sprint(got) != "[other late]" {
				t.Errorf("redlock %v: %v wait, want the other and the late one", redlock, got)
			}
		}
	}
}

// TestCasesOfAMutexRedlock: the same, on a node of Redlock.
func TestCasesOfAMutexRedlock(t *testing.T) {
	t.Parallel()
	w, random := newTwin(t, true, RedlockAcquire, RedlockRelease, RedlockKeepAlive, RedlockYield), testbed.Rand(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	for game := range 60 {
		w.client.FlushAll(t.Context())
		some := tickets[:6+game%5]
		numbers := make(map[string]int64)
		for round := range 40 {
			n := random.IntN(len(some))
			id := some[n]
			record := fmt.Sprintf("p%d %d 0 ", n%3, limitOf(id))
			kind, origin := Kind(id[0] != 'x'), "k"
			switch dice := random.IntN(20); {
			case dice < 12:
				if numbers[id] == 0 || dice < 2 {
					number += random.Int64N(3) // perhaps the number of another ticket
					numbers[id], origin = number-random.Int64N(3)/2, []string{"n", "r"}[random.IntN(2)]
				}
				mode := []string{"w", "w", "w", "t", "j"}[random.IntN(5)]
				w.same(fmt.Sprintf("propose %s %d %s", id, numbers[id], mode+origin),
					w.run("acquire", "fences", id, numbers[id], 60_000, kind+mode+origin, "bucket", round, record))
			case dice < 17:
				w.same("release "+id, w.run("release", "", id, "", ""))
				delete(numbers, id)
			case dice < 18:
				w.same("give back "+id, w.run("release", "", id, round-1, []any{"", 1}[random.IntN(2)]))
			case dice < 19:
				w.same("yield "+id, w.run("yield", "", id, round-1))
			default:
				w.same("heartbeat "+id, w.run("heartbeat", "", fmt.Sprintf("p%d", n%3), kind+id))
			}
		}
	}
}

// TestMastersThatLeft: a Pipe does not keep the masters that have left the Cluster.
func TestMastersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
		p := NewPipe(cluster)
		defer func() {
			p.Close(time.Second)
			_ = cluster.Close()
		}()
		stays := redis.NewClient(&redis.Options{})
		defer stays.Close()
		for range 20 {
			left := redis.NewClient(&redis.Options{})
			p.of(left)
			_ = left.Close()
			p.of(stays)
			time.Sleep(unused/2 + time.Second)
		}
		if n := len(p.servers); n > 3 {
			t.Errorf("%d masters are kept, of 2", n)
		}
	})
}

func TestUnansweredAddUp(t *testing.T) {
	var u Unanswered
	for range 2 { // one request that does not wait, and one that does
		c := NewCall(Acquire, []string{"key"}, nil)
		a := c.Ticket("id", true).(*ticketArg)
		for range 2 { // sent, and sent again
			if _, err := a.MarshalBinary(); err != nil {
				t.Fatal(err)
			}
		}
		u.Note(c, nil) // answered
	}
	if n := u.Requests("id"); n < 3 { // two may come; a release that finds the ticket counts one less
		t.Errorf("%d requests may still arrive", n)
	}
}
