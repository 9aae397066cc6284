package driver

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Parts returns the URLs in parentheses. It makes them known to Done.
func (u *URL) Parts() []*URL {
	u.takes = true
	return u.parts
}

// SetDefault sets a parameter that the URL does not have.
func (u *URL) SetDefault(name, value string) {
	if !u.query.Has(name) {
		u.query.Set(name, value)
	}
}

// parseParts parses (URL)(URL)…[?query]. It parses and quotes a part only after all
// parts look like URLs: a parenthesis in a password may have split one.
func (u *URL) parseParts(s string) error {
	const hint = " (in a user or password write ( as %28 and ) as %29)"
	var parts []string
	for strings.HasPrefix(s, "(") {
		end := closing(s)
		if end < 0 {
			return errors.New("malformed URL: a ( without its )" + hint)
		}
		part := s[1:end]
		if !strings.Contains(part, "://") {
			return errors.New("malformed URL: want URLs in the parentheses" + hint)
		}
		parts, s = append(parts, part), s[end+1:]
	}
	query, ok := strings.CutPrefix(s, "?")
	if s != "" && !ok || strings.ContainsAny(query, "@#()") {
		return errors.New("malformed URL: want nothing but ?name=value after the last )" + hint)
	}
	var err error
	if u.query, err = url.ParseQuery(query); err != nil {
		return errors.New("malformed URL: bad percent escape or semicolon in the query")
	}
	for i, part := range parts {
		p, err := ParseURL(part)
		if err != nil {
			return fmt.Errorf("in parentheses %d: %w", i+1, err)
		}
		u.parts = append(u.parts, p)
	}
	return nil
}

// closing returns the index of the parenthesis that closes the one at the beginning
// of s, or -1.
func closing(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
