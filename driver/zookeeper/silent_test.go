package zookeeper_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

// A server that accepts connections and opens no session is paused, overloaded, or none of
// ZooKeeper. The error says so in words, and not by the name of a constant of the client.
func TestNoSessionIsExplained(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	defer func() { ln.Close(); <-done }()
	c, err := locker.Open(t.Context(), "zookeeper://"+ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // before the read has timed out
	defer cancel()
	_, err = c.Inspect(ctx, "a")
	if !errors.Is(err, locker.ErrUnavailable) || strings.Contains(err.Error(), "State") || !strings.Contains(err.Error(), "session") {
		t.Errorf("got %v", err)
	}
}
