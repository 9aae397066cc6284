package sim

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
)

// redisLink is a connection, at the server.
type redisLink struct {
	n        *node
	c        *conn
	term     int // of the primary to which it was made
	channels map[string]bool
}

// redisRun is one command, or one script with its commands.
type redisRun struct {
	n      *node
	link   *redisLink
	now    int64 // µs
	script bool
	full   bool
	wrote  bool
}

// link makes the server's end of a connection.
func (n *node) link(c *conn) (serve func([]byte) []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &redisLink{n: n, c: c, term: n.term, channels: make(map[string]bool)}
	return l.serve
}

// splitRESP cuts off the first request.
func splitRESP(sent []byte) (req, rest []byte) {
	n := scanRESP(sent, func([]byte) {})
	if n == 0 {
		return nil, sent
	}
	return sent[:n:n], sent[n:]
}

// parseRESP returns the arguments of the first request; nil if it is not whole.
func parseRESP(sent []byte) (args []string) {
	if scanRESP(sent, func(arg []byte) { args = append(args, string(arg)) }) == 0 {
		return nil
	}
	return args
}

// scanRESP calls each with the arguments of the first request, and returns its length; 0 if it is not whole.
func scanRESP(sent []byte, each func(arg []byte)) (length int) {
	line := func() (int, bool) {
		end := bytes.IndexByte(sent[length:], '\n')
		if end < 2 {
			return 0, false
		}
		size, err := strconv.Atoi(string(sent[length+1 : length+end-1]))
		length += end + 1
		return size, err == nil
	}
	count, ok := line()
	for range count {
		size, whole := line()
		if !whole || len(sent) < length+size+2 {
			return 0
		}
		each(sent[length : length+size])
		length += size + 2
	}
	if !ok {
		return 0
	}
	return length
}

// greet answers what a client asks while it connects, which takes no time: the client holds a
// mutex meanwhile, which no bubble gets past.
func greet(req []byte) []byte {
	switch args := parseRESP(req); {
	case strings.EqualFold(args[0], "HELLO") && len(args) > 1:
		return encode(nil, hello)
	case strings.EqualFold(args[0], "CLIENT"):
		return encode(nil, redisStatus("OK"))
	}
	return nil
}

var hello = []any{"server", "redis", "version", "7.0.15", "proto", int64(2), "mode", "standalone", "role", "master"}

// serve answers one request.
func (l *redisLink) serve(req []byte) []byte {
	n := l.n
	args := parseRESP(req)
	verb := strings.ToUpper(args[0])
	_, _, full := n.s.state()
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &redisRun{n: n, link: l, now: n.time(), full: full.After(time.Now())}
	if n.s.reads() {
		return encode(nil, redisError("LOADING Redis is loading the dataset in memory"))
	}
	switch verb {
	case "HELLO":
		return encode(nil, hello)
	case "PING":
		if len(l.channels) > 0 {
			return encode(nil, []any{"pong", ""})
		}
		return encode(nil, redisStatus("PONG"))
	case "SUBSCRIBE", "UNSUBSCRIBE":
		return l.subscribe(verb, args[1:])
	case "WAIT":
		switch {
		case l.term != n.term: // what was written before on this connection went to the former primary
			return encode(nil, redisError("ERR WAIT cannot be used with replica instances."))
		case !n.waits:
			return encode(nil, int64(0))
		}
		n.acked = time.Now()
		return encode(nil, int64(1))
	case "SCRIPT":
		hash := scripts.load(args[2])
		n.known[hash] = true
		return encode(nil, hash)
	case "EVAL", "EVALSHA":
		return encode(nil, r.eval(verb, args))
	}
	return encode(nil, r.command(args))
}

// subscribe answers SUBSCRIBE and UNSUBSCRIBE. With node.mu held.
func (l *redisLink) subscribe(verb string, channels []string) (answer []byte) {
	l.n.links = slices.DeleteFunc(l.n.links, func(other *redisLink) bool { return other == l })
	for _, c := range channels {
		if delete(l.channels, c); verb == "SUBSCRIBE" {
			l.channels[c] = true
		}
		answer = encode(answer, []any{strings.ToLower(verb), c, int64(len(l.channels))})
	}
	if len(l.channels) > 0 {
		l.n.links = append(l.n.links, l)
	}
	return answer
}

// tombstones is how long after its release a late request for a ticket does nothing; see driver/redis.
const tombstones = 5 * time.Second

// eval runs a script. With node.mu held.
func (r *redisRun) eval(verb string, args []string) any {
	hash := args[1]
	if verb == "EVAL" {
		hash = scripts.load(args[1])
		r.n.known[hash] = true
	}
	if !r.n.known[hash] {
		return redisError("NOSCRIPT No matching script. Please use EVAL.")
	}
	keys, _ := strconv.Atoi(args[2])
	r.script = true
	p, proposes := r.n.proposal(args[3:3+keys], args[3+keys:])
	check := r.n.watchScript(r.now, args[3:3+keys], args[3+keys:])
	answer := scripts.eval(r, hash, args[3:3+keys], args[3+keys:])
	check(answer)
	if proposes {
		r.n.accepted(p, answer)
	}
	r.n.s.w.comesBack(r.n.s, args[3+keys:], func(name, id string, since time.Time) bool {
		there, _ := r.n.leaseOf(name, id, since)
		return there && time.Since(since) < tombstones
	})
	return answer
}

// command runs one command. A script that has written may go on where memory is short. With node.mu held.
func (r *redisRun) command(args []string) any {
	c, ok := redisCommands[strings.ToUpper(args[0])]
	switch {
	case !ok:
		return redisError("ERR unknown command '" + args[0] + "'")
	case len(args)-1 < c.least:
		return redisError("ERR wrong number of arguments for '" + args[0] + "' command")
	case c.writes && r.link.term != r.n.term:
		r.link.c.p.w.sendsTwice(r.link.c.p.process) // to the new primary: nobody knows then which of its replicas have what it wrote
		return redisError("READONLY You can't write against a read only replica.")
	case c.grows && r.full && !r.wrote:
		return redisError("OOM command not allowed when used memory > 'maxmemory'.")
	}
	if c.writes && !r.wrote {
		r.wrote = true
		r.n.remember()
	}
	return c.run(r, args[1:])
}

// remember notes what there was before a write. With mu held.
func (n *node) remember() {
	now := time.Now()
	for len(n.past) > 0 && now.Sub(n.past[0].at) > 2*time.Second {
		n.past = n.past[1:]
	}
	n.past = append(n.past, redisPast{now, n.data.clone()})
}

func (r *redisRun) time() any {
	return []any{strconv.FormatInt(r.now/1e6, 10), strconv.FormatInt(r.now%1e6, 10)}
}

// publish passes a message on to all who have subscribed, and answers how many of them have
// subscribed on this server. With mu held.
func (r *redisRun) publish(channel, message string) any {
	here := int64(0)
	r.n.links = slices.DeleteFunc(r.n.links, func(l *redisLink) bool { return l.c.failed() })
	for _, l := range r.n.links {
		if !l.channels[channel] || l.term != r.link.term && (l.term < r.n.linked || r.link.term != r.n.term) {
			continue
		}
		if l.term == r.link.term {
			here++
		}
		l.c.push(encode(nil, []any{"message", channel, message}), 0)
	}
	return here
}
