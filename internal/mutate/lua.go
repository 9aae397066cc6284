package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// texts writes the mutants of the Lua texts below dir, which the package embeds: each is a text of its own,
// which the package reads in place of the embedded one while the mutant is on (mutantText).
func (in *instrumenter) texts(dir, out string, names []string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".lua" || len(names) > 0 && !slices.Contains(names, e.Name()) {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		to := filepath.Join(out, rel)
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		for _, m := range luaMutants(string(src)) {
			in.last++
			in.mutants = append(in.mutants, mutant{in.last, m.kind, e.Name() + ":" + m.at, m.text})
			if err := os.WriteFile(filepath.Join(to, strconv.Itoa(in.last)), []byte(m.source), 0o600); err != nil {
				return err
			}
		}
		return nil
	})
}

// luaMutant is a mutant with the whole text that it makes.
type luaMutant struct {
	mutant
	source string
}

// luaText is a Lua text, by its tokens: where each begins and ends. They tell enough of scripts that are laid out as
// usual, a statement a line; what does not parse is left out.
type luaText struct {
	src     string
	tokens  [][]int
	mutants []luaMutant
}

var (
	luaToken = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'|\w+|\.\.|[<>=~]=|\n|[^\s\w]`)
	// luaStatement finds a call, an assignment, a return or a break: alone in its line, or between a then, do or else and an end.
	luaStatement = regexp.MustCompile(`^(.*\b(?:then|do|else) |\s*|local function .*\) )((?:return|break)\b.*?|[\w.#\[\] +]+(?:, [\w.#\[\] +]+)* = .*?|[\w.]+\(.*?)( end.*)?$`)
)

// edges are other tokens in place of one.
var edges = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==", "not": "", "max": "min", "min": "max",
}

// luaBounds are the tokens at which an operand of an operator ends, besides brackets.
var luaBounds = map[string][]string{
	"and": strings.Fields("and or not = , \n return if elseif while until then do end"),
	"+":   strings.Fields("and or not = , \n return if elseif while until then do end < <= > >= == ~= .. + - in"),
	"*":   strings.Fields("and or not = , \n return if elseif while until then do end < <= > >= == ~= .. + - in * / %"),
}

// luaMutants leaves out each statement of a Lua text but declarations, fixes each condition, leaves out each operand of and,
// or, +, - and *, and changes what compares: its edge, or its result.
func luaMutants(src string) []luaMutant {
	t := &luaText{src: src, tokens: luaToken.FindAllStringIndex(src, -1)}
	at := 0
	for line := range strings.Lines(src) {
		if m := luaStatement.FindStringSubmatchIndex(strings.TrimSuffix(line, "\n")); m != nil && !strings.Contains(line[:m[4]], "--") && !strings.HasPrefix(line[m[4]:], "local ") {
			t.add("omit", at+m[4], at+m[5], "")
		}
		at += len(line)
	}
	for i := range t.tokens {
		switch text := t.text(i); text {
		case "if", "elseif", "while":
			end := i
			for end < len(t.tokens) && t.text(end) != "then" && t.text(end) != "do" { // the word may be in a string
				end++
			}
			t.add("true", t.tokens[i+1][0], t.tokens[end-1][1], "true")
			t.add("false", t.tokens[i+1][0], t.tokens[end-1][1], "false")
		case "and", "or":
			t.operands(i, luaBounds["and"])
		case "+", "-":
			t.operands(i, luaBounds["+"])
		case "*":
			t.operands(i, luaBounds["*"])
		default:
			if to, ok := edges[text]; ok {
				t.add("edge", t.tokens[i][0], t.tokens[i][1], to)
			}
		}
	}
	return t.mutants
}

func (t *luaText) text(i int) string {
	if i < 0 || i >= len(t.tokens) {
		return "\n"
	}
	return t.src[t.tokens[i][0]:t.tokens[i][1]]
}

// operands leaves out one operand of the operator at i, and then the other one.
func (t *luaText) operands(i int, bounds []string) {
	if left := t.last(i, -1, bounds, "([{", ")]}"); left < i {
		t.add("without", t.tokens[left][0], t.tokens[i][1], "")
	}
	if right := t.last(i, 1, bounds, ")]}", "([{"); right > i {
		t.add("without", t.tokens[i][0], t.tokens[right][1], "")
	}
}

// last returns the last token of an operand, in a direction.
func (t *luaText) last(i, step int, bounds []string, closes, opens string) int {
	depth := 0
	for at := i + step; ; at += step {
		switch text := t.text(at); {
		case strings.Contains(opens, text):
			depth++
		case depth > 0 && strings.Contains(closes, text):
			depth--
		case depth == 0 && (strings.Contains(closes, text) || text == "\n" || strings.HasPrefix(text, "--") || slices.Contains(bounds, text)):
			return at - step
		}
	}
}

// add adds the mutant that has another text from a place to another one, if it is Lua.
func (t *luaText) add(kind string, from, to int, text string) {
	source := t.src[:from] + text + t.src[to:]
	if _, err := parse.Parse(strings.NewReader(source), "lua"); err != nil {
		return
	}
	line, left := strings.Count(t.src[:from], "\n"), t.src[from:to]
	if kind != "omit" {
		left = strings.TrimSpace(strings.Split(source, "\n")[line])
	}
	t.mutants = append(t.mutants, luaMutant{mutant{kind: kind, at: strconv.Itoa(line + 1), text: left}, source})
}
