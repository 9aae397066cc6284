package sim

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memcached"
)

// cache is a model of Memcached 1.6, by its doc/protocol.txt: the commands that the
// driver sends, items that expire by whole seconds of a clock that may be one too
// fast, and CAS numbers that begin again when the server is restarted: the writes of other
// programs may have brought them to where they were.
type cache struct {
	s   *server
	rnd *stream

	others *stream // what other programs do with the server
	signs  *signs

	mu    sync.Mutex
	items map[string]item
	cas   uint64
	pid   int
	up    time.Time // when its clock, which has whole seconds, was begun
}

type item struct {
	value []byte
	cas   uint64
	until time.Time
}

func newCache(s *server) *cache {
	c := &cache{s: s, rnd: newStream(s.w.seed, s.name), others: newStream(s.w.seed, s.name+" others"), signs: newSigns(s.w)}
	c.restart()
	return c
}

func (c *cache) restart() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.cas
	c.pid, c.up = c.pid+1, time.Now().Add(-c.others.upTo(time.Second))
	if c.items, c.cas = make(map[string]item), 0; before > 0 && c.others.one(2) { // the others have written a lot since
		c.cas = before - uint64(c.others.n(min(int(before), 12))) //nolint:gosec // small
	}
	return true
}

// life says how often the server was started.
func (c *cache) life() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

func (c *cache) leftovers() (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, i := range c.items {
		if i.until.After(time.Now()) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (c *cache) has(name string, token uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.items {
		if i.until.After(time.Now()) && bytes.Contains(i.value, fmt.Appendf(nil, `"n":%q`, name)) && bytes.Contains(i.value, fmt.Appendf(nil, `"k":%d,`, token)) {
			return true
		}
	}
	return false
}

// cacheDriver is deeper in checkedCache than what checks its answers.
type cacheDriver struct{ *memcached.Driver }

type checkedCache struct {
	*contract
	cacheDriver
}

// openCache opens the driver of a process.
func openCache(s *server, process string) (driver.Driver, *path, error) {
	c, p := s.model.(*cache), newPath(s, process)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var to int
		serve := func(req []byte) []byte {
			if c.life() != to {
				return nil // a server that was started again has no such connection
			}
			return c.serve(req)
		}
		nc, err := p.dial(ctx, serve, splitText)
		to = c.life()
		return struct{ net.Conn }{nc}, err // no syscall.Conn: to the driver it is no socket
	}
	d, err := memcached.New([]string{s.name + ":11211"}, memcached.WithDialer(dial))
	return checkedCache{&contract{w: s.w, m: c, d: d, process: process, again: newStream(s.w.seed, "again").one(2)}, cacheDriver{d}}, p, err
}

// splitText cuts off the first request of the text protocol.
func splitText(sent []byte) (req, rest []byte) {
	line, after, ok := bytes.Cut(sent, []byte("\r\n"))
	if !ok {
		return nil, sent
	}
	n := len(line) + 2
	fields := strings.Fields(string(line))
	size := ""
	switch fields[0] {
	case "add", "cas", "replace":
		size = fields[4]
	}
	if size != "" {
		data, _ := strconv.Atoi(size)
		if len(after) < data+2 {
			return nil, sent
		}
		n += data + 2
	}
	return sent[:n:n], sent[n:]
}

// serve answers one request.
func (c *cache) serve(req []byte) []byte {
	line, data, _ := bytes.Cut(req, []byte("\r\n"))
	data = bytes.TrimSuffix(data, []byte("\r\n"))
	f := strings.Fields(string(line))
	_, _, full := c.s.state()
	isFull := full.After(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	old, there := c.items[f[min(1, len(f)-1)]]
	there = there && old.until.After(time.Now())
	switch f[0] {
	case "version":
		return []byte("VERSION 1.6.21\r\n")
	case "stats":
		up := int64(time.Since(c.up) / time.Second)
		return fmt.Appendf(nil, "STAT pid %d\r\nSTAT uptime %d\r\nSTAT time %d\r\nSTAT evictions off\r\nSTAT item_size_max 1048576\r\nEND\r\n", c.pid, up, c.up.Unix()+up)
	case "mg":
		if !there {
			return []byte("EN\r\n")
		}
		return fmt.Appendf(nil, "VA %d c%d\r\n%s\r\n", len(old.value), old.cas, old.value)
	case "add":
		if there {
			return []byte("NOT_STORED\r\n")
		}
	case "replace":
		if !there {
			return []byte("NOT_STORED\r\n")
		}
	case "cas":
		cas, _ := strconv.ParseUint(f[5], 10, 64)
		if !there {
			return []byte("NOT_FOUND\r\n")
		}
		if old.cas != cas {
			return []byte("EXISTS\r\n")
		}
	default:
		return []byte("ERROR\r\n")
	}
	if isFull {
		return []byte("SERVER_ERROR out of memory storing object\r\n")
	}
	c.store(f[1], data, f[3])
	return []byte("STORED\r\n")
}

// store stores an item. With mu held.
func (c *cache) store(key string, value []byte, keep string) {
	n, _ := strconv.Atoi(keep)
	c.cas++
	c.signs.note(key, value, func(string) time.Time { return c.up })
	if i, there := c.items[key]; there && i.until.After(time.Now()) {
		c.s.w.comesBack(c.s, ids(value, ""), always)
	} else {
		c.s.w.mayReturn(ids(value, ""))
	}
	c.items[key] = item{append([]byte(nil), value...), c.cas, time.Now().Add(time.Duration(n)*time.Second - c.rnd.upTo(time.Second))}
}
