// Package docs_test checks the documents of this module: every Go block
// compiles, or is a part of a file that does, and every link leads somewhere.
package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the Markdown files of the repository, relative to this folder.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../*.md", "*.md", "../*/README.md", "../*/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 5 {
		t.Fatalf("found only %q", files)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a fenced block of a document.
type block struct {
	where, language, text string
}

func blocks(file, text string) (found []block) {
	var b *block
	for i, line := range strings.Split(text, "\n") {
		switch fence, isFence := strings.CutPrefix(strings.TrimLeft(line, " "), "```"); {
		case isFence && b == nil:
			b = &block{where: fmt.Sprintf("%s:%d", file, i+1), language: fence}
		case isFence:
			found, b = append(found, *b), nil
		case b != nil:
			b.text += line + "\n"
		}
	}
	return found
}

// otelModule is a module of its own, in which a block that uses it is compiled.
const otelModule = "observe/otel"

// packages are the imports that a block may leave out, by the name that it uses.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "os": "os", "slog": "log/slog",
	"sql": "database/sql", "strconv": "strconv", "synctest": "testing/synctest", "testing": "testing", "time": "time",
	"api":         "github.com/hashicorp/consul/api",
	"clientv3":    "go.etcd.io/etcd/client/v3",
	"pgx":         "github.com/jackc/pgx/v5",
	"pgxpool":     "github.com/jackc/pgx/v5/pgxpool",
	"goredis":     "github.com/redis/go-redis/v9",
	"locker":      "github.com/lockerproject/locker",
	"compose":     "github.com/lockerproject/locker/compose",
	"conformance": "github.com/lockerproject/locker/conformance",
	"link":        "github.com/lockerproject/locker/conformance/link",
	"coord":       "github.com/lockerproject/locker/coord",
	"driver":      "github.com/lockerproject/locker/driver",
	"consul":      "github.com/lockerproject/locker/driver/consul",
	"dynamodb":    "github.com/lockerproject/locker/driver/dynamodb",
	"etcd":        "github.com/lockerproject/locker/driver/etcd",
	"memcached":   "github.com/lockerproject/locker/driver/memcached",
	"memory":      "github.com/lockerproject/locker/driver/memory",
	"mysql":       "github.com/lockerproject/locker/driver/mysql",
	"nats":        "github.com/lockerproject/locker/driver/nats",
	"postgres":    "github.com/lockerproject/locker/driver/postgres",
	"redis":       "github.com/lockerproject/locker/driver/redis",
	"redlock":     "github.com/lockerproject/locker/driver/redlock",
	"zookeeper":   "github.com/lockerproject/locker/driver/zookeeper",
	"election":    "github.com/lockerproject/locker/election",
	"fence":       "github.com/lockerproject/locker/fence",
	"etcdfence":   "github.com/lockerproject/locker/fence/etcdfence",
	"pgxfence":    "github.com/lockerproject/locker/fence/pgxfence",
	"redisfence":  "github.com/lockerproject/locker/fence/redisfence",
	"sqlfence":    "github.com/lockerproject/locker/fence/sqlfence",
	"lockertest":  "github.com/lockerproject/locker/lockertest",
	"lockerslog":  "github.com/lockerproject/locker/observe/slog",
	"lockerotel":  "github.com/lockerproject/locker/observe/otel",
	"sqlite":      "github.com/lockerproject/locker/driver/sqlite",
	"stripe":      "github.com/lockerproject/locker/stripe",
}

// stubs are what blocks use without saying what it is.
const stubs = `
var (
	_ = sell
	_ = ship
	_ = report
	_ = page
	_ = url
	_ = logger
)

var (
	url    string
	logger *slog.Logger
)

func page(context.Context, ...any) {}

func ship(ctx context.Context, order int, token ...uint64) error { return ctx.Err() }
func sell(ctx context.Context, token uint64, order int) error { return ctx.Err() }
func report(ctx context.Context) error                       { return ctx.Err() }
`

var (
	declares = regexp.MustCompile(`(?m)^(func|type|var|const) `)
	imported = regexp.MustCompile(`(?m)^import (\w+ |_ )?"[^"]*".*\n`)
	uses     = regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`)
)

// program makes a Go file of a block: one that is a file is left as it is, and
// statements are put into a function that has a context, a Client and a database.
func program(b block) string {
	if strings.HasPrefix(b.text, "package ") || strings.HasPrefix(b.text, "// ") && strings.Contains(b.text, "\npackage ") {
		return b.text
	}
	imports := strings.Join(imported.FindAllString(b.text, -1), "")
	body := imported.ReplaceAllString(b.text, "")
	if !declares.MatchString(body) {
		if strings.Contains(body, "err := ") && !strings.Contains(body, "err != nil") {
			body += "_ = err\n"
		}
		body = "func _(ctx context.Context, l *locker.Client, d driver.Driver, db *sql.DB) error {\n{\n" + body + "\n_ = l\n}\nreturn nil\n}\n"
	}
	body += stubs
	seen := []string{}
	for _, m := range uses.FindAllStringSubmatch(body, -1) {
		path, known := packages[m[1]]
		if known && !slices.Contains(seen, path) && !strings.Contains(imports, `"`+path+`"`) {
			seen = append(seen, path)
			imports += fmt.Sprintf("import %s %q\n", m[1], path)
		}
	}
	return "package p\n" + imports + body
}

// TestCodeCompiles compiles every Go block, as a package of its own in this module.
func TestCodeCompiles(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]map[string]string{".": {}, otelModule: {}} // by module: where they are, by their folder
	overlay := map[string]string{}
	for _, file := range documents(t) {
		for _, b := range blocks(file, read(t, file)) {
			if b.language != "go" || excerpt.MatchString(b.text) {
				continue
			}
			module, name := ".", fmt.Sprintf("block%d", len(overlay))
			if strings.Contains(b.text, "lockerotel.") {
				module = otelModule
			}
			source := filepath.Join(dir, name+".go")
			if err := os.WriteFile(source, []byte(program(b)), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(root, module, "docs", "internal", name, "block.go")] = source
			programs[module]["./docs/internal/"+name] = b.where
		}
	}
	if len(overlay) == 0 {
		t.Fatal("no Go block was found")
	}
	list := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for module, where := range programs {
		compile(t, filepath.Join(root, module), list, where)
	}
}

// TestFrontPageRuns runs the program of README.md, as somebody does who pastes it.
func TestFrontPageRuns(t *testing.T) {
	all := blocks("README.md", read(t, "../README.md"))
	i := slices.IndexFunc(all, func(b block) bool { return strings.Contains(b.text, "\npackage main\n") })
	if i < 0 {
		t.Fatal("README.md has no program")
	}
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(all[i].text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "go", "run", source)
	run.Dir = ".."
	if out, err := run.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "shipping order 42 ") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestPagesBeginAndEnd: a page begins with whom it is for, and ends with what to read next.
func TestPagesBeginAndEnd(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 2 {
		t.Fatal(pages, err)
	}
	for _, file := range pages {
		paragraphs := strings.Split(strings.TrimSpace(read(t, file)), "\n\n")
		first, last := paragraphs[1], paragraphs[len(paragraphs)-1]
		if file != "README.md" && (!strings.HasPrefix(first, "For ") || !strings.HasPrefix(last, "Next: ")) {
			t.Errorf("%s begins with %q and ends with %q", file, first, last)
		}
	}
}

// excerpt is the beginning of a block that is a part of a file of this module.
var excerpt = regexp.MustCompile(`^// From (\S+):\n`)

// TestExcerpts looks for these blocks in their files, with which they compile.
func TestExcerpts(t *testing.T) {
	found := 0
	for _, file := range documents(t) {
		for _, b := range blocks(file, read(t, file)) {
			m := excerpt.FindStringSubmatch(b.text)
			if m == nil {
				continue
			}
			found++
			if !strings.Contains(read(t, filepath.Join("..", m[1])), strings.TrimPrefix(b.text, m[0])) {
				t.Errorf("%s is not, or no longer, in %s", b.where, m[1])
			}
		}
	}
	if found == 0 {
		t.Fatal("no excerpt was found")
	}
}

// compile builds packages of a module, and says which documents they are from.
func compile(t *testing.T, module, overlay string, where map[string]string) {
	t.Helper()
	args := append([]string{"build", "-overlay", overlay}, slices.Sorted(maps.Keys(where))...)
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = module
	out, err := build.CombinedOutput()
	if err == nil {
		return
	}
	said := string(out)
	for name, at := range where {
		if regexp.MustCompile(strings.TrimPrefix(name, "./") + `\b`).MatchString(said) {
			t.Errorf("%s does not compile", at)
		}
	}
	t.Errorf("%v:\n%s", err, said)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)|<(?:img|source|a)[^>]*(?:src|srcset|href)="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noID    = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(noID.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// TestLinks looks for the files and headings that links name. Links to other
// sites are not followed.
func TestLinks(t *testing.T) {
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			target := m[1] + m[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path, id, _ := strings.Cut(target, "#")
			to := file
			if path != "" {
				to = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s: %v", file, target, err)
				continue
			}
			if id == "" {
				continue
			}
			found := slices.ContainsFunc(heading.FindAllStringSubmatch(read(t, to), -1), func(h []string) bool { return anchor(h[1]) == id })
			if !found {
				t.Errorf("%s: %s: there is no such heading", file, target)
			}
		}
	}
}

// TestReleaseWaitsForCI reads the workflow that publishes: each of its jobs but CI itself needs
// CI, which is the workflow that pull requests run.
func TestReleaseWaitsForCI(t *testing.T) {
	text := read(t, "../.github/workflows/release.yml")
	_, text, _ = strings.Cut(text, "\njobs:\n")
	heads := regexp.MustCompile(`(?m)^  (\w+):.*$`).FindAllStringSubmatchIndex(text, -1)
	if len(heads) < 2 {
		t.Fatalf("%d jobs in %q", len(heads), text)
	}
	for i, h := range heads {
		name, body := text[h[2]:h[3]], text[h[1]:]
		if i+1 < len(heads) {
			body = text[h[1]:heads[i+1][0]]
		}
		want := "\n    needs: ci\n"
		if name == "ci" {
			want = "\n    uses: ./.github/workflows/ci.yml\n"
		}
		if !strings.Contains(body, want) {
			t.Errorf("the job %s is without %q", name, strings.TrimSpace(want))
		}
	}
	if !strings.Contains(read(t, "../.github/workflows/ci.yml"), "\n  workflow_call:") {
		t.Error("ci.yml cannot be called")
	}
}
