package redisqueue

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// A Script is one of the scripts in lua/; each file says what it is given and
// what it answers.
type Script struct {
	name    string
	source  string
	hash    any     // of the source, by which Redis knows the script
	variant *Script // the same, for main keys that have a form
	several *Script // answers several calls on the same keys in one run; nil: none does
}

// The queues that scripts include. A script of both has queue, in place of which load puts the other.
const (
	queue        = "queue"
	redlockQueue = "redlock_queue"
)

// The scripts of a server that keeps locks by itself; lua/queue.lua describes the queue.
var (
	Acquire   = load("acquire", queue).forSeveral("acquires", queue)
	Release   = load("release", queue).forSeveral("releases", queue)
	Renew     = load("renew", queue)
	KeepAlive = load("heartbeat", queue)
	Shorten   = load("shorten", queue)
	Break     = load("break", queue)
	Inspect   = load("inspect", queue)
)

// The scripts of one node of Redlock; lua/redlock_queue.lua describes the queue.
var (
	RedlockAcquire   = load("redlock_acquire", redlockQueue)
	RedlockYield     = load("redlock_yield", redlockQueue)
	RedlockRelease   = load("redlock_release", redlockQueue)
	RedlockRenew     = load("redlock_renew", redlockQueue)
	RedlockKeepAlive = load("redlock_heartbeat", redlockQueue)
	RedlockShorten   = load("shorten", redlockQueue)
	RedlockBreak     = load("break", redlockQueue)
	RedlockInspect   = load("inspect", redlockQueue)
)

// The scripts of both.
var (
	Ping     = load("ping", "")
	Protocol = load("protocol", "")
)

// Script returns the script for these keys. If main keys have a form, that is the
// variant with other keys beside them; see formMark.
func (k Keys) Script(s *Script) *Script {
	if k.Form != "" {
		return s.variant
	}
	return s
}

// load reads a script, which is part of the program. A script has to write all keys
// beside a main key as key .. ':x', because load replaces that. It also replaces LIVENESS by
// Liveness in milliseconds.
func load(name, queue string) *Script {
	source := strings.ReplaceAll(read(name, queue), "LIVENESS", strconv.FormatInt(Liveness.Milliseconds(), 10))
	s := newScript(name, source)
	s.variant = newScript(name, strings.ReplaceAll(source, "key .. ':", `key .. '\255:`))
	return s
}

// forSeveral sets the script for several calls.
func (s *Script) forSeveral(name, queue string) *Script {
	several := load(name, queue)
	s.several, s.variant.several = several, several.variant
	return s
}

func newScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // it is the name that Redis knows the script by
	return &Script{name: name, source: source, hash: hex.EncodeToString(sum[:])}
}

// read returns a file, with the files that it includes.
func read(name, of string) string {
	if name == queue {
		name = of
	}
	b, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisqueue: " + err.Error())
	}
	var source strings.Builder
	for line := range strings.Lines(string(b)) {
		if file, ok := strings.CutPrefix(line, "--#include "); ok {
			line = read(strings.TrimSuffix(file, ".lua\n"), of)
		}
		source.WriteString(line)
	}
	return source.String()
}
