package redisline

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// A Script is one of the scripts in lua/; each file says what it is given and
// what it answers.
type Script struct {
	name   string
	source string
	sha    string
}

// The scripts.
var (
	Acquire = load("acquire")
	Release = load("release")
	Renew   = load("renew")
	Beat    = load("beat")
	Break   = load("break")
	Inspect = load("inspect")
)

// load reads a script, with the files that it includes. They must be there:
// they are part of the program.
func load(name string) *Script {
	source := read(name)
	for line := range strings.SplitSeq(source, "\n") {
		if file, ok := strings.CutPrefix(line, "--#include "); ok {
			source = strings.Replace(source, line, read(strings.TrimSuffix(file, ".lua")), 1)
		}
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // it is the name that Redis knows the script by
	return &Script{name: name, source: source, sha: hex.EncodeToString(sum[:])}
}

func read(name string) string {
	b, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisline: " + err.Error())
	}
	return string(b)
}
