package redisqueue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// CheckForm refuses forms of main keys with which two names could have the same key
// or, in a Cluster, the keys of one name could be in different hash slots.
func (k Keys) CheckForm() error {
	switch {
	case k.Form == "":
		return nil
	case len(k.Form) > 256 || !utf8.ValidString(k.Form) || strings.ContainsFunc(k.Form, unicode.IsControl):
		return fmt.Errorf("key form %q: want at most 256 bytes of text without control characters", k.Form)
	case strings.Count(k.Form, "*") != 1:
		return fmt.Errorf("key form %q: want one * where the name is to stand, as in lock:*", k.Form)
	case k.Slots && !hasTag(k.Main("name")):
		return fmt.Errorf("key form %q: in a Cluster all keys of a lock have to be in one hash slot: want braces, as in {*} or lock:{*}", k.Form)
	}
	return nil
}

// CheckName refuses the few names whose main key, of the given form, would be one of
// the driver's own keys or, in a Cluster, have no hash tag.
func (k Keys) CheckName(name string) error {
	if k.Form == "" {
		return nil
	}
	main := k.Main(name)
	rest, own := strings.CutPrefix(main, k.Prefix+":")
	own = own && (rest == "fence" || rest == "fences" || strings.HasPrefix(rest, "fence:{") ||
		rest == protocolKey || strings.HasPrefix(rest, protocolKey+":"))
	switch {
	case own:
		return driver.NoTicket(fmt.Errorf("%w: with key_form=%s the key of this name would be %q, which the driver has for itself: want another prefix",
			driver.ErrUnsupported, k.Form, main))
	case k.Slots && !hasTag(main):
		return driver.NoTicket(fmt.Errorf("%w: with key_form=%s the key of this name would be %q, which has no hash tag: a Cluster would keep its keys apart",
			driver.ErrUnsupported, k.Form, main))
	}
	return nil
}

// hasTag reports whether a key has a hash tag, which alone decides its hash slot.
func hasTag(key string) bool {
	_, rest, ok := strings.Cut(key, "{")
	return ok && strings.IndexByte(rest, '}') > 0
}

// Names returns each name that has a ticket on a server. ends are the ends of the keys of
// the sets of waiters. If main keys have a form, those whose value does not begin with
// word are left out: they may be other data.
func (k Keys) Names(ctx context.Context, c *redis.Client, word string, ends ...string) ([]string, error) {
	names := make(map[string]struct{})
	var cursor uint64
	for {
		keys, next, err := c.Scan(ctx, cursor, k.Pattern(), 1000).Result()
		if err == nil && k.Form != "" {
			keys, err = k.ours(ctx, c, word, keys)
		}
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if name, ok := k.Name(key, ends...); ok {
				names[name] = struct{}{}
			}
		}
		if cursor = next; cursor == 0 || ctx.Err() != nil {
			return slices.Collect(maps.Keys(names)), ctx.Err()
		}
	}
}

// ours keeps the sets of waiters, and the main keys whose value begins with word.
func (k Keys) ours(ctx context.Context, c *redis.Client, word string, keys []string) ([]string, error) {
	p := c.Pipeline()
	heads := make(map[string]*redis.StringCmd)
	for _, key := range keys {
		if _, ok := k.Name(key); ok {
			heads[key] = p.GetRange(ctx, key, 0, int64(len(word)))
		}
	}
	// A key that is not a string has an error of its own.
	if _, err := p.Exec(ctx); err != nil && !IsReply(err) {
		return nil, err
	}
	kept := keys[:0]
	for _, key := range keys {
		head := heads[key]
		switch {
		case head == nil, // perhaps a set of waiters: Name decides
			head.Err() == nil && (head.Val() == word+" " || head.Val() == word+"?"):
			kept = append(kept, key)
		case head.Err() != nil && !redis.HasErrorPrefix(head.Err(), "WRONGTYPE"):
			return nil, head.Err()
		}
	}
	return kept, nil
}
