package zookeeper_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// cycler is one client that acquires and releases.
type cycler func() error

// kinds of client on one server, each made with a connection of its own.
var kinds = []struct {
	name string
	make func(b *testing.B, url, name string) cycler
}{
	{"locker", func(b *testing.B, url, name string) cycler {
		c := client(b, url)
		return func() error {
			k, err := c.Acquire(context.Background(), name)
			if err != nil {
				return err
			}
			return k.Release(context.Background())
		}
	}},
	{"driver", func(b *testing.B, url, name string) cycler {
		d := open(b, url)
		return func() error {
			r := driver.Request{Name: name, ID: "id-" + hex(), TTL: defaultTTL, Renewed: true, Wait: true}
			g, err := d.Acquire(context.Background(), r)
			if err != nil {
				return err
			}
			return d.Release(context.Background(), r.Hold(g.Token))
		}
	}},
	{"zk.Lock", func(b *testing.B, url, name string) cycler {
		conn := admin(b)
		return func() error {
			l := zk.NewLock(conn, base(url)+"/"+name, zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return err
			}
			return l.Unlock()
		}
	}},
	{"raw", func(b *testing.B, url, name string) cycler {
		conn := admin(b)
		for _, p := range []string{"/t", base(url)[:len(base(url))-7], base(url), base(url) + "/" + name} {
			_, _ = conn.Create(p, nil, 0, zk.WorldACL(zk.PermAll))
		}
		return func() error {
			p, err := conn.Create(base(url)+"/"+name+"/x-", []byte{}, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
			if err != nil {
				return err
			}
			if _, _, err := conn.Children(base(url) + "/" + name); err != nil {
				return err
			}
			return conn.Delete(p, -1)
		}
	}},
}

const defaultTTL = locker.DefaultTTL

func hex() string { return fmt.Sprintf("%x", rand.Text()) }

func BenchmarkUncontended(b *testing.B) {
	testbed.SharedZookeeper(b)
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			cycle := kind.make(b, storeURL(b), "name")
			if err := cycle(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := cycle(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkContended runs 16 clients on one name: an operation is a grant.
func BenchmarkContended(b *testing.B) {
	testbed.SharedZookeeper(b)
	for _, kind := range kinds[:3] {
		b.Run(kind.name, func(b *testing.B) {
			url := storeURL(b)
			cycles := make([]cycler, 16)
			for i := range cycles {
				cycles[i] = kind.make(b, url, "name")
				if err := cycles[i](); err != nil {
					b.Fatal(err)
				}
			}
			tickets := make(chan struct{})
			errs := make(chan error, len(cycles))
			for _, cycle := range cycles {
				go func() {
					var err error
					for range tickets {
						if err == nil {
							err = cycle()
						}
					}
					errs <- err
				}()
			}
			b.ResetTimer()
			before := mntr(b, testbed.SharedZookeeper(b))
			defer func() {
				after := mntr(b, testbed.SharedZookeeper(b))
				b.ReportMetric(float64(after["packets_received"]-before["packets_received"])/float64(b.N), "requests/op")
				b.ReportMetric(float64(after["packets_sent"]-before["packets_sent"])/float64(b.N), "sent/op")
			}()
			for range b.N {
				tickets <- struct{}{}
			}
			close(tickets)
			for range cycles {
				if err := <-errs; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
