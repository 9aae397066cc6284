package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
)

// counted is a connection that counts the requests in what is written to it.
type counted struct {
	*net.TCPConn // a driver may want to know that it is a socket
	n            *atomic.Int64
	count        func(written []byte) int
}

func (c *counted) Write(b []byte) (int, error) {
	c.n.Add(int64(c.count(b)))
	return c.TCPConn.Write(b)
}

// dial makes a connection that counts.
func dial(ctx context.Context, network, addr string, n *atomic.Int64, count func([]byte) int) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &counted{c.(*net.TCPConn), n, count}, nil
}

// writes counts the writes: some clients send each request with one.
func writes([]byte) int { return 1 }

// lines counts the lines that begin with one of the words: no value of the benchmark
// looks like that.
func lines(words ...string) func([]byte) int {
	return func(b []byte) (n int) {
		for line := range bytes.Lines(b) {
			if slices.ContainsFunc(words, func(w string) bool { return bytes.HasPrefix(line, []byte(w)) }) {
				n++
			}
		}
		return n
	}
}

// countedTransport counts requests by HTTP.
type countedTransport struct {
	http.RoundTripper
	n *atomic.Int64
}

func (t countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.n.Add(1)
	return t.RoundTripper.RoundTrip(r)
}
