package zkconn

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestOnlyWritesConfirm: a server that is cut off from the others answers a read, and a
// sync, so neither shows that the session lives. A request that a majority has refused
// does not count either.
func TestOnlyWritesConfirm(t *testing.T) {
	t.Parallel()
	_, c, _, _ := adopted(t, 10*time.Second, false)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s := present(ctx, t, c)
	path := "/confirm-" + rand.Text()
	for what, read := range map[string]func() error{
		"Get":           func() error { _, _, err := c.Get(ctx, "/"); return err },
		"Exists":        func() error { _, err := c.Exists(ctx, "/"); return err },
		"Children":      func() error { _, _, err := c.Children(ctx, "/"); return err },
		"Sync":          func() error { return c.Sync(ctx) },
		"Watch":         func() error { _, err := c.Watch(ctx, "/"); return err },
		"WatchChildren": func() error { _, err := c.WatchChildren(ctx, "/", State{}); return err },
		"refused Multi": func() error {
			if _, err := c.Multi(ctx, &zk.DeleteRequest{Path: path, Version: -1}); !errors.Is(err, zk.ErrNoNode) {
				return errors.Join(errors.New("it was not refused"), err)
			}
			return nil
		},
	} {
		if err := read(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if at := s.confirmedAt(); !at.IsZero() {
			t.Fatalf("%s has confirmed the session", what)
		}
	}
	for _, write := range []struct {
		what string
		do   func() error
	}{
		{"CreatePath", func() error { return c.CreatePath(ctx, path, zk.WorldACL(zk.PermAll)) }},
		{"Confirm", func() error { return c.Confirm(ctx) }},
		{"Multi", func() error { _, err := c.Multi(ctx, &zk.DeleteRequest{Path: path, Version: -1}); return err }},
	} {
		before := time.Now()
		if err := write.do(); err != nil {
			t.Errorf("%s: %v", write.what, err)
		}
		if at := s.confirmedAt(); at.Before(before) || at.After(time.Now()) {
			t.Errorf("%s, sent after %v, has confirmed the session as of %v", write.what, before, at)
		}
	}
}

// TestWatches: a watch is used again until it fires, or the client has another
// connection.
func TestWatches(t *testing.T) {
	t.Parallel()
	_, c, p, _ := adopted(t, 10*time.Second, false)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	path := "/watches-" + rand.Text()
	acl := zk.WorldACL(zk.PermAll)
	if w, err := c.WatchNode(ctx, path); err != nil || !w.HasFired() {
		t.Errorf("a node that is not there: %v, %v", w, err)
	}
	if err := c.CreatePath(ctx, path+"/a", acl); err != nil {
		t.Fatal(err)
	}
	node := func() Watch {
		w, err := c.WatchNode(ctx, path)
		if err != nil || w.HasFired() || !c.Shows(w) {
			t.Fatalf("a watch on a node that has not changed: %v, %v", w, err)
		}
		return w
	}
	children := func() Watch {
		_, st, err := c.Children(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.WatchChildren(ctx, path, ChildrenOf(st))
		if err != nil || w.HasFired() {
			t.Fatalf("a watch on children that have not changed: %v, %v", w, err)
		}
		return w
	}
	first, all := node(), children()
	if node() != first || children() != all {
		t.Error("a second watch was set")
	}
	if w, err := c.WatchChildren(ctx, path, State{}); err != nil || !w.HasFired() {
		t.Errorf("a watch on children that are not as they were seen: %v, %v", w, err)
	}
	if _, err := c.Multi(ctx, &zk.DeleteRequest{Path: path + "/a", Version: -1}); err != nil {
		t.Fatal(err)
	}
	<-all.C
	if children() == all {
		t.Error("a watch that has fired was used again")
	}
	p.Reset()
	for c.Shows(first) {
		time.Sleep(time.Millisecond)
	}
	if _, ok := c.watchOn(path); ok {
		t.Error("a watch of another connection is used again")
	}
	_, other, _, _ := adopted(t, 10*time.Second, false)
	if _, err := other.Multi(ctx, &zk.DeleteRequest{Path: path, Version: -1}); err != nil {
		t.Fatal(err)
	}
	<-first.C // the client has set it again
}
