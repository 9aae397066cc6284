package driver

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A URL names a store: scheme://[user[:password]@]host[,host…][/path][?query].
// Unlike net/url it accepts several hosts, each with its own port. A URL that is
// made of other URLs has them in parentheses: scheme://(URL)(URL)…[?query]. No
// method and no error shows the password.
//
// Drivers use the same parameter names for the same settings, as far as their
// clients have them: dial_timeout, read_timeout, write_timeout (timeout, if there
// is only one for a request), pool_size, keepalive; tls, ca, cert, key, server_name
// and insecure_skip_verify; password_file and token_file (see Secret).
type URL struct {
	Scheme   string
	User     string
	Password string
	HasUser  bool // there was a user part, perhaps empty
	Hosts    []string
	Path     string // unescaped, with its leading slash, or empty

	parts []*URL // in parentheses
	takes bool   // Parts was called: the scheme accepts parts
	query url.Values
	known []string // parameters that were read
	errs  []error
}

// ParseURL parses a URL. Its errors wrap [ErrInvalidOption] and name the part that
// is wrong.
func ParseURL(raw string) (*URL, error) {
	u, err := parseURL(raw)
	return u, mark(err, ErrInvalidOption)
}

func parseURL(raw string) (*URL, error) {
	if raw == "" {
		return nil, errors.New("empty URL: want scheme://host…, as in redis://localhost:6379")
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || scheme == "" || strings.ContainsFunc(scheme, notInScheme) {
		return nil, errors.New("malformed URL: want scheme://host…, as in redis://localhost:6379") // what is there may be a password
	}
	u := &URL{Scheme: strings.ToLower(scheme)}
	if strings.HasPrefix(rest, "(") {
		if err := u.parseParts(rest); err != nil {
			return nil, err
		}
		return u, nil
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	if fragment != "" {
		return nil, errors.New("malformed URL: a fragment (#…) is not accepted; write %23 for a # in a password")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, errors.New("malformed URL: bad percent escape in the path")
	}
	if u.query, err = url.ParseQuery(query); err != nil {
		return nil, errors.New("malformed URL: bad percent escape or semicolon in the query")
	}
	if strings.Contains(path+query, "@") {
		// This may be a password that contains an unescaped / or ?, whose beginning
		// may look like a port. Do not parse or quote anything that may be part of it.
		return nil, errors.New("malformed URL: an @ after a / or ? (in a user or password write / as %2F and ? as %3F; anywhere write @ as %40)")
	}
	if err := u.parseAuthority(authority); err != nil {
		return nil, err
	}
	return u, nil
}

func notInScheme(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+-.", r)
}

func (u *URL) parseAuthority(s string) error {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		user, password, _ := strings.Cut(s[:i], ":")
		s = s[i+1:]
		u.HasUser = true
		var err1, err2 error
		u.User, err1 = url.PathUnescape(user)
		u.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return errors.New("malformed URL: bad percent escape in user or password")
		}
	}
	if s == "" {
		return nil
	}
	for host := range strings.SplitSeq(s, ",") {
		u.Hosts = append(u.Hosts, host)
		if err := checkHost(host); err != nil {
			return fmt.Errorf("malformed URL: host %d: %w", len(u.Hosts), err)
		}
	}
	return nil
}

// checkHost quotes nothing: if the @ before the host is missing or escaped, the password is here.
func checkHost(host string) error {
	name := host
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name = host[:i]
		if n, err := strconv.ParseUint(host[i+1:], 10, 16); err != nil || n == 0 {
			return errors.New("bad port: want 1 to 65535")
		}
	}
	bracketed := strings.HasPrefix(name, "[")
	if name == "" || strings.ContainsAny(name, " \t\r\n()") || bracketed != strings.HasSuffix(name, "]") ||
		!bracketed && strings.ContainsAny(name, ":%") {
		return errors.New("bad name: want a host name, an IPv4 address, or an IPv6 address in brackets; the @ after a password is not escaped")
	}
	return nil
}

// HostsWithPort returns the hosts, with defaultPort added to those without a port.
func (u *URL) HostsWithPort(defaultPort string) []string {
	hosts := make([]string, len(u.Hosts))
	for i, h := range u.Hosts {
		if strings.LastIndexByte(h, ':') <= strings.LastIndexByte(h, ']') {
			h += ":" + defaultPort
		}
		hosts[i] = h
	}
	return hosts
}

// Redacted returns the URL without the user (which may be a token), the password
// and the query.
func (u *URL) Redacted() string {
	if len(u.parts) > 0 {
		s := u.Scheme + "://"
		for _, part := range u.parts {
			s += "(" + part.Redacted() + ")"
		}
		return s
	}
	return u.Scheme + "://" + strings.Join(u.Hosts, ",") + (&url.URL{Path: u.Path}).EscapedPath()
}

// String returns Redacted.
func (u *URL) String() string { return u.Redacted() }

// GoString returns Redacted, so that %#v does not show the password either.
func (u *URL) GoString() string { return u.Redacted() }

// Param returns a parameter, or def if the URL does not have it. It makes the
// parameter known to Done.
func (u *URL) Param(name, def string) string {
	u.known = append(u.known, name)
	vs := u.query[name]
	if len(vs) > 1 {
		u.errs = append(u.errs, fmt.Errorf("parameter %q is given %d times", name, len(vs)))
	}
	if len(vs) == 0 {
		return def
	}
	return vs[0]
}

// Duration is Param for a time.ParseDuration value greater than zero.
func (u *URL) Duration(name string, def time.Duration) time.Duration {
	return parsed(u, name, def, "a duration greater than zero, such as 30s", func(s string) (time.Duration, bool) {
		d, err := time.ParseDuration(s)
		return d, err == nil && d > 0
	})
}

// Int is Param for a whole number of at least least.
func (u *URL) Int(name string, def, least int) int {
	return parsed(u, name, def, fmt.Sprintf("a whole number of at least %d", least), func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= least
	})
}

// Bool is Param for true or false.
func (u *URL) Bool(name string, def bool) bool {
	return parsed(u, name, def, "true or false", func(s string) (bool, bool) {
		b, err := strconv.ParseBool(s)
		return b, err == nil
	})
}

// parsed is Param for what parse makes of the text.
func parsed[T any](u *URL, name string, def T, want string, parse func(s string) (T, bool)) T {
	s := u.Param(name, "")
	if s == "" && !u.query.Has(name) {
		return def
	}
	v, ok := parse(s)
	if !ok {
		u.errs = append(u.errs, fmt.Errorf("parameter %s=%q: want %s", name, s, want))
		return def
	}
	return v
}

// Refuse makes Done return err, by which a driver rejects a parameter. The text
// begins with the parameter's name and contains no secret. Nil is ignored.
func (u *URL) Refuse(err error) {
	if err != nil {
		u.errs = append(u.errs, err)
	}
}

// Done returns the errors of the parameters. Parameters that were not read are
// unknown: the error names them and lists the known ones. URLs in parentheses that
// were not read are refused too. The error wraps [ErrInvalidOption].
func (u *URL) Done() error {
	errs := u.errs
	if len(u.parts) > 0 && !u.takes {
		errs = append(errs, fmt.Errorf("%s:// takes no URLs in parentheses", u.Scheme))
	}
	for _, name := range slices.Sorted(maps.Keys(u.query)) {
		if !slices.Contains(u.known, name) {
			known := slices.Compact(slices.Sorted(slices.Values(u.known)))
			errs = append(errs, fmt.Errorf("unknown parameter %q (known: %s)", name, strings.Join(known, ", ")))
		}
	}
	return mark(errors.Join(errs...), ErrInvalidOption)
}
