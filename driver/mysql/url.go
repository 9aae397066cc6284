package mysql

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/setup"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

func init() {
	driver.Register("mysql", func(_ context.Context, u *driver.URL) (driver.Driver, error) { return openURL(u, nil) })
}

// Open makes a Driver with a pool of its own from a URL, as locker.Open does, and also
// takes options, such as [WithLogger], which override the parameters of the URL. It does
// not reach the database.
func Open(_ context.Context, url string, opts ...Option) (*Driver, error) {
	return setup.Open(url, func(u *driver.URL) (*Driver, error) { return openURL(u, opts) }, "mysql")
}

const (
	dialBound   = 5 * time.Second // for a connection
	defaultPool = 16
)

// openURL makes a driver with a pool of its own. See the package comment for the parameters.
func openURL(u *driver.URL, opts []Option) (*Driver, error) {
	all := []Option{
		WithPrefix(u.Param("prefix", DefaultPrefix)),
		WithLiveness(u.Duration("liveness", DefaultLiveness)),
	}
	if !u.Bool("create", true) {
		all = append(all, WithoutCreate())
	}
	pool := u.Int("pool_size", defaultPool, 1)
	u.Duration("ttl", time.Second) // the core's
	cfg, err := clientConfig(u)
	if err != nil {
		return nil, err
	}
	o, w, err := newOptions(append(all, opts...))
	if err != nil {
		return nil, err
	}
	o.address = cfg.Addr + "/" + cfg.DBName
	cfg.Logger = &mysql.NopLogger{} // its messages are in the errors, too
	if o.logger != nil {
		cfg.Logger = logger{o.logger}
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(pool)
	db.SetMaxIdleConns(pool)
	db.SetConnMaxIdleTime(time.Minute)
	d := newDriver(db, o, w)
	d.owned = true
	return d, nil
}

// logger passes on the messages of go-sql-driver, which are about connections that failed.
type logger struct{ l *slog.Logger }

func (l logger) Print(v ...any) { l.l.Warn("mysql: " + strings.TrimSpace(fmt.Sprintln(v...))) }

// flags are the parameters of a DSN of go-sql-driver, true or false, that a URL may have, too.
var flags = []string{
	"allowCleartextPasswords", "allowFallbackToPlaintext", "allowNativePasswords", "allowOldPasswords", "checkConnLiveness", "compress",
}

// same maps parameters of a DSN to the parameters of all drivers with the same meaning.
var same = map[string]string{"timeout": "dial_timeout", "readTimeout": "read_timeout", "writeTimeout": "write_timeout"}

// clientConfig reads from a URL how to reach the database, and refuses unknown parameters.
func clientConfig(u *driver.URL) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN("/?" + dsnParameters(u).Encode())
	if err != nil {
		return nil, fmt.Errorf("parameters of the DSN: %w", err)
	}
	timeouts := map[string]time.Duration{"dial_timeout": dialBound, "read_timeout": 0, "write_timeout": 0}
	for alias, name := range same {
		if u.Param(alias, "") != "" && u.Param(name, "") != "" {
			u.Refuse(fmt.Errorf("parameters %s and %s: want one of them", alias, name))
		}
		timeouts[name] = u.Duration(name, u.Duration(alias, timeouts[name]))
	}
	secure, mode := encryption(u)
	password := u.Secret("password_file", u.Password)
	if err := u.Done(); err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(u.Path, "/")
	if len(u.Hosts) != 1 || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("want mysql://user:password@host:3306/database with one host, got %s", u.Redacted())
	}
	cfg.User, cfg.Passwd = u.User, password
	cfg.Net, cfg.Addr, cfg.DBName = "tcp", u.HostsWithPort("3306")[0], name
	cfg.TLS, cfg.TLSConfig = tlsurl.ForHost(secure, cfg.Addr), mode
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = timeouts["dial_timeout"], timeouts["read_timeout"], timeouts["write_timeout"]
	cfg.Params = map[string]string{"autocommit": "1"} // whatever the server's default
	return cfg, nil
}

// dsnParameters returns the parameters that go-sql-driver reads itself.
func dsnParameters(u *driver.URL) url.Values {
	query := url.Values{}
	for _, name := range flags {
		if u.Param(name, "unset") != "unset" {
			query.Set(name, strconv.FormatBool(u.Bool(name, false)))
		}
	}
	const attributes, packet = "connectionAttributes", "maxAllowedPacket"
	if v := u.Param(attributes, ""); v != "" {
		query.Set(attributes, v)
	}
	if n := u.Int(packet, -1, 0); n >= 0 {
		query.Set(packet, strconv.Itoa(n))
	}
	return query
}

// encryption returns how connections are encrypted: by the parameters of all drivers, or by a mode of
// go-sql-driver.
func encryption(u *driver.URL) (*tls.Config, string) {
	mode := u.Param("tls", "")
	if mode != "skip-verify" && mode != "preferred" {
		return tlsurl.Config(u, false), ""
	}
	for _, name := range []string{"ca", "cert", "key", "server_name", "insecure_skip_verify"} {
		if u.Param(name, "") != "" {
			u.Refuse(fmt.Errorf("parameters tls=%s and %s: want tls=true with that", mode, name))
		}
	}
	return nil, mode
}
