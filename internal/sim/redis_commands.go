package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// keyspace is what a server of Redis holds.
type keyspace map[string]*redisValue

// redisValue is a string, a hash or a sorted set.
type redisValue struct {
	text  *string
	hash  map[string]string
	zset  map[string]float64
	until int64 // by the server's clock, in ms; 0: for ever
}

func (k keyspace) clone() keyspace {
	c := make(keyspace, len(k))
	for key, v := range k {
		c[key] = &redisValue{text: v.text, hash: maps.Clone(v.hash), zset: maps.Clone(v.zset), until: v.until}
	}
	return c
}

// What Redis answers, besides int64, string, []any and nil.
type (
	redisStatus string
	redisError  string
)

var (
	errType   = redisError("WRONGTYPE Operation against a key holding the wrong kind of value")
	errNumber = redisError("ERR value is not an integer or out of range")
	errFloat  = redisError("ERR value is not a valid float")
	errSyntax = redisError("ERR syntax error")
)

// redisCommand is a command that the scripts or the drivers use.
type redisCommand struct {
	writes, grows bool // grows: refused where memory is short
	least         int  // arguments
	run           func(r *redisRun, args []string) any
}

var redisCommands = map[string]redisCommand{
	"SET":           {true, true, 2, set},
	"GET":           {false, false, 1, func(r *redisRun, a []string) any { return text(r.get(a[0]), 0, math.MaxInt) }},
	"GETRANGE":      {false, false, 3, getRange},
	"DEL":           {true, false, 1, del},
	"EXISTS":        {false, false, 1, exists},
	"PTTL":          {false, false, 1, pttl},
	"PEXPIRE":       {true, false, 2, pexpire},
	"TIME":          {false, false, 0, func(r *redisRun, _ []string) any { return r.time() }},
	"HGET":          {false, false, 2, hget},
	"HSET":          {true, true, 3, hset},
	"HDEL":          {true, false, 2, hdel},
	"HLEN":          {false, false, 1, hlen},
	"ZADD":          {true, true, 3, zadd},
	"ZREM":          {true, false, 2, zrem},
	"ZSCORE":        {false, false, 2, zscore},
	"ZCARD":         {false, false, 1, zcard},
	"ZCOUNT":        {false, false, 3, zcount},
	"ZRANGE":        {false, false, 3, func(r *redisRun, a []string) any { return zrange(r, a, false) }},
	"ZREVRANGE":     {false, false, 3, func(r *redisRun, a []string) any { return zrange(r, a, true) }},
	"ZRANGEBYSCORE": {false, false, 3, zrangeByScore},
	"PUBLISH":       {false, false, 2, func(r *redisRun, a []string) any { return r.publish(a[0], a[1]) }},
	"SCAN":          {false, false, 1, scan},
}

// get returns the value of a key that has not expired, or nil.
func (r *redisRun) get(key string) *redisValue {
	v := r.n.data[key]
	if v != nil && v.until != 0 && r.now/1000 > v.until {
		delete(r.n.data, key)
		return nil
	}
	return v
}

// drop removes a key whose last element has gone.
func (r *redisRun) drop(key string, left int) {
	if left == 0 {
		delete(r.n.data, key)
	}
}

func text(v *redisValue, from, to int) any {
	switch {
	case v == nil:
		return nil
	case v.text == nil:
		return errType
	}
	return (*v.text)[min(from, len(*v.text)):min(to, len(*v.text))]
}

func getRange(r *redisRun, a []string) any {
	from, err1 := strconv.Atoi(a[1])
	to, err2 := strconv.Atoi(a[2])
	if err1 != nil || err2 != nil || from < 0 || to < 0 {
		return errNumber
	}
	if v := r.get(a[0]); v != nil {
		return text(v, from, to+1)
	}
	return ""
}

func set(r *redisRun, a []string) any {
	old, v := r.get(a[0]), &redisValue{text: &a[1]}
	returns, absent := false, false
	for i := 2; i < len(a); i++ {
		switch strings.ToUpper(a[i]) {
		case "GET":
			returns = true
		case "NX":
			absent = true
		case "PX":
			i++
			ms, err := strconv.ParseInt(a[min(i, len(a)-1)], 10, 64)
			if err != nil {
				return errNumber
			}
			if ms <= 0 {
				return redisError("ERR invalid expire time in 'set' command")
			}
			v.until = r.now/1000 + ms
		default:
			return errSyntax
		}
	}
	was := text(old, 0, math.MaxInt)
	if returns && was == errType {
		return errType
	}
	if !absent || old == nil {
		r.n.data[a[0]] = v
		if !returns {
			return redisStatus("OK")
		}
	}
	if returns {
		return was
	}
	return nil
}

func del(r *redisRun, a []string) any {
	n := int64(0)
	for _, key := range a {
		if r.get(key) != nil {
			delete(r.n.data, key)
			n++
		}
	}
	return n
}

func exists(r *redisRun, a []string) any {
	n := int64(0)
	for _, key := range a {
		if r.get(key) != nil {
			n++
		}
	}
	return n
}

func pttl(r *redisRun, a []string) any {
	switch v := r.get(a[0]); {
	case v == nil:
		return int64(-2)
	case v.until == 0:
		return int64(-1)
	default:
		return max(0, v.until-r.now/1000)
	}
}

func pexpire(r *redisRun, a []string) any {
	ms, err := strconv.ParseInt(a[1], 10, 64)
	if err != nil {
		return errNumber
	}
	v := r.get(a[0])
	if v == nil {
		return int64(0)
	}
	if v.until = r.now/1000 + ms; ms <= 0 {
		delete(r.n.data, a[0])
	}
	return int64(1)
}

// contents returns what a key holds, in the form that of names; if it is not there, a new one
// if write is set, else nil.
func contents[T any](r *redisRun, key string, write bool, of func(*redisValue) *map[string]T) (map[string]T, any) {
	v := r.get(key)
	if v == nil {
		if !write {
			return nil, nil
		}
		v = &redisValue{}
		*of(v) = make(map[string]T)
		r.n.data[key] = v
	}
	if *of(v) == nil {
		return nil, errType
	}
	return *of(v), nil
}

func hashOf(v *redisValue) *map[string]string  { return &v.hash }
func zsetOf(v *redisValue) *map[string]float64 { return &v.zset }

func hget(r *redisRun, a []string) any {
	h, err := contents(r, a[0], false, hashOf)
	if v, ok := h[a[1]]; ok {
		return v
	}
	return err
}

func hlen(r *redisRun, a []string) any {
	h, err := contents(r, a[0], false, hashOf)
	if err != nil {
		return err
	}
	return int64(len(h))
}

func hset(r *redisRun, a []string) any {
	h, err := contents(r, a[0], true, hashOf)
	if err != nil {
		return err
	}
	n := int64(0)
	for i := 1; i+1 < len(a); i += 2 {
		if _, ok := h[a[i]]; !ok {
			n++
		}
		h[a[i]] = a[i+1]
	}
	return n
}

// removes is HDEL and ZREM.
func removes[T any](r *redisRun, a []string, of func(*redisValue) *map[string]T) any {
	m, err := contents(r, a[0], false, of)
	if err != nil {
		return err
	}
	n := int64(0)
	for _, f := range a[1:] {
		if _, ok := m[f]; ok {
			delete(m, f)
			n++
		}
	}
	r.drop(a[0], len(m))
	return n
}

func hdel(r *redisRun, a []string) any { return removes(r, a, hashOf) }
func zrem(r *redisRun, a []string) any { return removes(r, a, zsetOf) }

// scan answers with all keys at once.
func scan(r *redisRun, a []string) any {
	begins := ""
	for i := 1; i+1 < len(a); i += 2 {
		if strings.EqualFold(a[i], "MATCH") {
			begins = strings.TrimSuffix(a[i+1], "*")
		}
	}
	found := []any{}
	for _, key := range slices.Sorted(maps.Keys(r.n.data)) {
		if strings.HasPrefix(key, begins) && r.get(key) != nil {
			found = append(found, key)
		}
	}
	return []any{"0", found}
}

// encode writes an answer in RESP 2.
func encode(b []byte, answer any) []byte {
	switch a := answer.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case int64:
		return fmt.Appendf(b, ":%d\r\n", a)
	case string:
		return fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	case redisStatus:
		return fmt.Appendf(b, "+%s\r\n", a)
	case redisError:
		return fmt.Appendf(b, "-%s\r\n", a)
	case []any:
		b = fmt.Appendf(b, "*%d\r\n", len(a))
		for _, e := range a {
			b = encode(b, e)
		}
		return b
	}
	panic(fmt.Sprintf("sim: Redis answers %T", answer))
}
