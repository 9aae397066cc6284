package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/setup"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
)

var schemes = []string{"zookeeper", "zookeepers"}

func init() {
	for _, scheme := range schemes {
		driver.Register(scheme, func(_ context.Context, u *driver.URL) (driver.Driver, error) { return openURL(u, nil) })
	}
}

// Open makes a Driver with a connection of its own from a URL, as locker.Open does, and
// also takes options, such as [WithLogger], which override the URL. It waits for no
// server.
func Open(_ context.Context, url string, opts ...Option) (*Driver, error) {
	return setup.Open(url, func(u *driver.URL) (*Driver, error) { return openURL(u, opts) }, schemes...)
}

// openURL opens a zookeeper:// or zookeepers:// URL. See the package comment for its
// parts.
func openURL(u *driver.URL, opts []Option) (*Driver, error) {
	timeout := u.Duration("session", defaultSession)
	prefix := u.Param("prefix", defaultPrefix)
	dialTimeout := u.Duration("dial_timeout", time.Second)
	password := u.Secret("password_file", u.Password)
	secure := tlsurl.Config(u, u.Scheme == "zookeepers")
	if timeout < time.Millisecond || timeout > 24*time.Hour {
		u.Refuse(fmt.Errorf("parameter session=%v: want 1ms to 24h", timeout))
	}
	if strings.Trim(prefix, "/") == "" {
		u.Refuse(fmt.Errorf("parameter prefix=%q: want the name of a node", prefix))
	}
	if err := u.Done(); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, errors.New("no host: want zookeeper://host:2181")
	}
	if (u.HasUser || password != "") && (u.User == "" || strings.Contains(u.User, ":")) {
		return nil, errors.New("the user must not be empty, nor have a colon in it")
	}
	port := "2181"
	if secure != nil {
		port = "2281"
	}
	chroot, err := cleanPath(u.Path)
	if err != nil {
		return nil, err
	}
	all := []Option{WithPrefix(chroot + "/" + prefix)}
	if u.HasUser {
		all = append(all, WithACL(zk.AuthACL(zk.PermAll)...))
	}
	o, err := newOptions(append(all, opts...))
	if err != nil {
		return nil, err
	}
	if o.forward != nil {
		return nil, errors.New("WithEvents is for New")
	}
	c := zkconn.Options{
		Base: o.base, Session: timeout, Servers: u.HostsWithPort(port), TLS: secure, Dial: dialTimeout, Logger: o.logger,
	}
	if u.HasUser {
		c.Credentials = u.User + ":" + password
	}
	conn, err := zkconn.Open(c)
	if err != nil {
		return nil, err
	}
	return newDriver(conn, o), nil
}

// cleanPath returns the path of a node with one slash before every part and none at the
// end; "" for the root.
func cleanPath(path string) (string, error) {
	var b strings.Builder
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "":
			continue
		case part == "." || part == "..":
			return "", fmt.Errorf("path %q: a part may not be %q", path, part)
		case strings.ContainsFunc(part, refused):
			return "", fmt.Errorf("path %q: it has a character that ZooKeeper refuses", path)
		}
		b.WriteString("/" + part)
	}
	return b.String(), nil
}

// refused reports whether ZooKeeper refuses a rune in a path.
func refused(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}
