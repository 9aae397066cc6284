package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/setup"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

func init() {
	for _, scheme := range schemes {
		driver.Register(scheme, func(ctx context.Context, u *driver.URL) (driver.Driver, error) { return openURL(ctx, u, nil) })
	}
}

var schemes = []string{"postgres", "postgresql"}

// Open makes a Driver with a pool of its own from a URL, as locker.Open does. It also takes options, such as
// [WithLogger], which override the parameters of the URL. It does not reach the database.
func Open(ctx context.Context, url string, opts ...Option) (*Driver, error) {
	return setup.Open(url, func(u *driver.URL) (*Driver, error) { return openURL(ctx, u, opts) }, schemes...)
}

func openURL(ctx context.Context, u *driver.URL, opts []Option) (*Driver, error) {
	all := []Option{
		WithPrefix(u.Param("prefix", DefaultPrefix)), WithSchema(u.Param("schema", DefaultSchema)),
		WithLiveness(u.Duration("liveness", DefaultLiveness)),
	}
	if !u.Bool("listen", true) {
		all = append(all, WithoutListen())
	}
	if !u.Bool("create", true) {
		all = append(all, WithoutCreate())
	}
	switch d := u.Param("durability", ""); d {
	case "":
	case "async":
		all = append(all, WithAsyncDurability())
	default:
		u.Refuse(fmt.Errorf("parameter durability: %q: want async, or leave it out", d))
	}
	u.Duration("ttl", time.Second) // the core's
	c, err := poolConfig(u)
	if err != nil {
		return nil, err
	}
	o, w, err := newOptions(append(all, opts...))
	if err != nil {
		return nil, err
	}
	if o.logger != nil {
		logTo(o.logger, c.ConnConfig)
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	d := newDriver(pool, o, w)
	d.owned = true
	return d, nil
}

// passed are the parameters of a URL that pgx reads: libpq's, and those of its pool.
var passed = []string{
	"application_name", "connect_timeout", "krbspn", "krbsrvname", "options", "passfile", "search_path",
	"sslcert", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "sslsni", "target_session_attrs",
	"default_query_exec_mode", "pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime",
	"pool_max_conn_lifetime_jitter", "pool_max_conn_idle_time", "pool_health_check_period",
}

// same lists, for a parameter that all drivers have, the parameters of libpq and pgx with the same meaning.
var same = map[string][]string{
	"dial_timeout": {"connect_timeout"},
	"pool_size":    {"pool_max_conns"},
	"tls":          {"sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslsni"},
}

// defaultDialTimeout bounds a connection to one of the servers.
const defaultDialTimeout = 5 * time.Second

// poolConfig reads from a URL how to reach the database, and refuses unknown parameters.
func poolConfig(u *driver.URL) (*pgxpool.Config, error) {
	query := url.Values{}
	for _, name := range passed {
		if v := u.Param(name, ""); v != "" {
			query.Set(name, v)
		}
	}
	for name, others := range same {
		if i := slices.IndexFunc(others, query.Has); i >= 0 && u.Param(name, "") != "" {
			u.Refuse(fmt.Errorf("parameters %s and %s: want one of them", name, others[i]))
		}
	}
	secure := tlsurl.Config(u, false)
	if secure != nil {
		query.Set("sslmode", "require") // so that there is no fallback; the rest is set below
	} else if u.Param("tls", "") != "" {
		query.Set("sslmode", "disable")
	}
	if n := u.Int("pool_size", 0, 1); n > 0 {
		query.Set("pool_max_conns", strconv.Itoa(n))
	}
	dial := u.Duration("dial_timeout", 0)
	password := u.Secret("password_file", u.Password)
	if err := u.Done(); err != nil {
		return nil, err
	}
	c, err := pgxpool.ParseConfig(dsn(u, password, query))
	if err != nil {
		return nil, errors.New(reason(err))
	}
	cc := c.ConnConfig
	if secure != nil {
		cc.TLSConfig = tlsurl.ForHost(secure, net.JoinHostPort(cc.Host, "0")) // the port does not count
		for _, f := range cc.Fallbacks {
			f.TLSConfig = tlsurl.ForHost(secure, net.JoinHostPort(f.Host, "0"))
		}
	}
	switch {
	case dial > 0:
		cc.ConnectTimeout = dial
	case cc.ConnectTimeout == 0 && !query.Has("connect_timeout"): // nor is it in the environment
		cc.ConnectTimeout = defaultDialTimeout
	}
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "locker"
	}
	cc.RuntimeParams["client_encoding"] = "UTF8" // whatever the database is in
	return c, nil
}

// dsn is a URL as pgx reads it.
func dsn(u *driver.URL, password string, query url.Values) string {
	hosts := u.Hosts
	if len(hosts) > 1 { // pgx would give the ports to the first hosts
		hosts = u.HostsWithPort("5432")
	}
	dsn := url.URL{Scheme: "postgres", Host: strings.Join(hosts, ","), Path: u.Path, RawQuery: query.Encode()}
	switch {
	case password != "":
		dsn.User = url.UserPassword(u.User, password)
	case u.HasUser:
		dsn.User = url.User(u.User)
	}
	return dsn.String()
}

// reason returns what pgx finds wrong with a configuration, without its text: pgx does not recognize all secrets in it.
func reason(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 { // cannot parse `…`: …
		text = text[i+len("`: "):]
	}
	return text
}
