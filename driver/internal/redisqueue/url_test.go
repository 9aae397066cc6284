package redisqueue

import (
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

func TestClientOptions(t *testing.T) {
	for url, check := range map[string]func(o *optionsSeen) bool{
		"redis://h":                             func(o *optionsSeen) bool { return o.addrs == "h:6379" && o.db == 0 && !o.tls },
		"redis://u:p@h:1/7":                     func(o *optionsSeen) bool { return o.addrs == "h:1" && o.db == 7 && o.user == "u" && o.password == "p" },
		"redis://:p@h":                          func(o *optionsSeen) bool { return o.user == "" && o.password == "p" },
		"rediss://h":                            func(o *optionsSeen) bool { return o.tls && o.server == "" },
		"redis+cluster://a,b:2":                 func(o *optionsSeen) bool { return o.addrs == "a:6379,b:2" && o.cluster },
		"redis+cluster://a?tls=true":            func(o *optionsSeen) bool { return o.cluster && o.tls },
		"redis+sentinel://a,b:2/m/3":            func(o *optionsSeen) bool { return o.addrs == "a:26379,b:2" && o.master == "m" && o.db == 3 },
		"redis://h?read_timeout=9s&pool_size=3": func(o *optionsSeen) bool { return o.read == 9*time.Second && o.write == o.read && o.pool == 3 },
		"redis://h?dial_timeout=7s&write_timeout=8s": func(o *optionsSeen) bool {
			return o.dial == 7*time.Second && o.write == 8*time.Second && o.read == 3*time.Second
		},
		"rediss://h?server_name=n":                 func(o *optionsSeen) bool { return o.server == "n" },
		"redis+sentinel://a/m?sentinel_password=s": func(o *optionsSeen) bool { return o.sentinel == "s" },
	} {
		o, err := see(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else if !check(o) {
			t.Errorf("%s: %+v", url, o)
		}
	}
}

type optionsSeen struct {
	addrs, user, password, master, server, sentinel string
	db, pool                                        int
	dial, read, write                               time.Duration
	tls, cluster                                    bool
}

func see(url string) (*optionsSeen, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o, err := ClientOptions(u, time.Second)
	if err != nil {
		return nil, err
	}
	s := &optionsSeen{
		addrs: strings.Join(o.Addrs, ","), user: o.Username, password: o.Password, master: o.MasterName,
		sentinel: o.SentinelPassword, db: o.DB, pool: o.PoolSize, dial: o.DialTimeout, read: o.ReadTimeout, write: o.WriteTimeout,
		tls: o.TLSConfig != nil, cluster: o.IsClusterMode,
	}
	if s.tls {
		s.server = o.TLSConfig.ServerName
	}
	return s, nil
}

func TestClientOptionsRefused(t *testing.T) {
	for url, part := range map[string]string{
		"redis://":                             "no host",
		"redis://a,b":                          "more than one host",
		"redis://h/x":                          `database "x"`,
		"redis://h/-1":                         `database "-1"`,
		"redis+cluster://h/3":                  "no databases",
		"redis+sentinel://h":                   "name of the primary",
		"redis://h?insecure_skip_verify=true":  "tls=true",
		"redis://h?write_timeout=0":            "write_timeout",
		"redis://h?password_file=/does/not/be": "parameter password_file",
		"rediss://h?ca=/does/not/be":           "parameter ca",
		"redis://u:hush@h?colour=blue":         `unknown parameter "colour"`,
		"redis://u:hush@h?pool_size=0":         "pool_size",
		"redis://h?read_timeout=1s":            "read_timeout",
		"redis://h?dial_timeout=-1s":           "dial_timeout",
	} {
		_, err := see(url)
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want an error that says %q", url, err, part)
		}
	}
}
