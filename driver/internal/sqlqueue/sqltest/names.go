// Package sqltest has what the tests of the drivers for databases share. Read faults.go first: it plays small scenarios
// on a real server, each once for each statement that a process sends and each fault that the statement can meet.
package sqltest

import (
	"fmt"
	"strings"
)

// names are lock names, and whether they may be shown to people as they are.
var names = map[string]bool{
	"orders/42":                     true,
	"two words ":                    true,
	`C:\jobs`:                       true,
	"it's \"this\"":                 true,
	strings.Repeat("日", 170):        true, // the longest
	strings.Repeat("x", 511) + "\n": false,
	"Grüße, 日本 😀":                   true,
	"\u00a0\u07ff\u0800\ud7ff\ue000\ufffd\U00010000\U000fffff\U0010ffff": true, // the ends of each length
	"red \x1b[31m":            false,
	"a\nb":                    false,
	"nul\x00":                 false,
	"del\x7f":                 false,
	"csi\u009b":               false,
	"rtl \u202egpj":           false,
	"isolate\u2066":           false,
	"mark\u061c":              false,
	"zero\u200bwidth":         false,
	"\ufeffbom":               false,
	"soft\u00adhyphen":        false,
	"tag\U000e0041":           false,
	"line\u2028":              false,
	"text \xff":               false, // not UTF-8: an owner or a note that another program has written
	"surrogate \xed\xa0\x80":  false,
	"overlong \xc0\xaf":       false,
	"beyond \xf4\x90\x80\x80": false,
	"half \xe2\x82":           false,
	"0x41":                    true, // unless mark is 0x
	`\x41`:                    true,
}

// Shown maps each text to what people see. Texts that may not be shown as they are begin with
// mark there.
func Shown(mark string) map[string]string {
	all := make(map[string]string)
	for name, plain := range names {
		all[name] = name
		if !plain || len(name) >= len(mark) && name[:len(mark)] == mark {
			all[name] = Hex(mark, name)
		}
	}
	return all
}

// Hex returns the form of a text that may not be shown as it is.
func Hex(mark, text string) string { return fmt.Sprintf("%s%x", mark, text) }
