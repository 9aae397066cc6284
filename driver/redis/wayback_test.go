package redis_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// hole is a route to a server that can lose every byte without closing a
// connection, like a firewall that forgets its flows.
type hole struct {
	listener net.Listener
	open     atomic.Bool // bytes vanish

	mu    sync.Mutex
	conns []net.Conn
}

func newHole(t *testing.T, target string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{listener: l}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", target)
			if err != nil {
				_ = c.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, c, s)
			h.mu.Unlock()
			work.Go(func() { h.pump(s, c) })
			work.Go(func() { h.pump(c, s) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			_ = c.Close()
		}
		h.mu.Unlock()
		work.Wait()
	})
	return h
}

func (h *hole) pump(dst, src net.Conn) {
	defer dst.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := src.Read(buf)
		if n > 0 && !h.open.Load() {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err != io.EOF { //nolint:errorlint // io.Reader's very sentinel
				_ = src.Close()
			}
			return
		}
	}
}

// TestWayBack: a release that an outage has left unanswered is done within two
// seconds after the route works again, and another lock of the same client is
// kept.
func TestWayBack(t *testing.T) {
	notShort(t)
	t.Parallel()
	srv := testbed.SharedRedis(t)
	cut := func(end func(*testbed.Proxy)) (string, func(), func()) {
		p := srv.Proxy(t)
		return p.URL(), p.Cut, func() { end(p); p.Heal() }
	}
	for fault, way := range map[string]func() (url string, off, on func()){
		"delivers late": func() (string, func(), func()) { return cut(func(*testbed.Proxy) {}) },
		"resets":        func() (string, func(), func()) { return cut((*testbed.Proxy).Reset) },
		"refuses": func() (string, func(), func()) {
			p := srv.Proxy(t)
			return p.URL(), p.Refuse, p.Heal
		},
		"loses answers": func() (string, func(), func()) {
			p := srv.Proxy(t)
			return p.URL(), func() { p.DropReplies(true) }, p.Heal
		},
		"loses every byte": func() (string, func(), func()) {
			h := newHole(t, srv.Addr())
			return "redis://" + h.listener.Addr().String(), func() { h.open.Store(true) }, func() { h.open.Store(false) }
		},
	} {
		url, off, on := way()
		t.Run(strings.ReplaceAll(fault, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l, other := process(t, url), process(t, srv.URL())
			name, second := newName(), newName()
			k := take(t, l, name, locker.WithTTL(15*time.Second))
			kept := take(t, l, second, locker.WithTTL(15*time.Second))
			got := acquiring(t, other, name)
			await(t, other, name, 2)
			off()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := k.Release(ctx); err == nil {
				t.Error("released without an answer")
			}
			time.Sleep(6 * time.Second)
			on()
			next, took := within(t, got, 2*time.Second)
			t.Logf("free %v after the way was back", took)
			release(t, next)
			if err := kept.Err(); err != nil {
				t.Errorf("the other lock: %v", err)
			}
			release(t, kept)
		})
	}
}
