package sim

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Most mutants are changes inside of one function, or of a script. They are built into one
// binary: of each such function it has a copy for each mutant, and one that is as it was; an
// environment variable says which one is called. The others are built one by one.

const (
	switchEnv  = "LOCKER_SIM_MUTANT"
	switchPath = "internal/sim/mutantswitch"
)

// edit replaces a part of a file.
type edit struct {
	from, to int
	text     string
}

// switched returns the files, by path, of a build with many mutants, and the numbers of those
// that are in it, by name. A mutant's number is its place in the table, from 1 on.
func switched(t *testing.T, all []mutant) (files map[string]string, numbers map[string]int) {
	files, numbers = make(map[string]string), make(map[string]int)
	byFile := make(map[string][]int)
	for i := range all {
		byFile[all[i].file] = append(byFile[all[i].file], i+1)
	}
	scripts := make(map[int][2]string)
	for file, in := range byFile {
		path := filepath.Join("../..", file)
		text, err := os.ReadFile(path) //nolint:gosec // our own
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".lua") {
			for _, n := range in {
				scripts[n] = [2]string{filepath.Base(file), strings.Replace(string(text), all[n-1].old, all[n-1].new, 1)}
				numbers[all[n-1].name] = n
			}
			continue
		}
		changed, which := copies(t, string(text), all, in)
		for _, n := range which {
			numbers[all[n-1].name] = n
		}
		if len(which) > 0 {
			files[path] = changed
		}
	}
	embedded := filepath.Join("../..", "driver/internal/redisqueue/script.go")
	text, ok := files[embedded]
	if !ok {
		b, err := os.ReadFile(embedded)
		if err != nil {
			t.Fatal(err)
		}
		text = imported(string(b))
	}
	const read = "files.ReadFile("
	if strings.Count(text, read) != 1 {
		t.Fatalf("%s has changed: %q is there %d times", embedded, read, strings.Count(text, read))
	}
	files[embedded] = strings.Replace(text, read, "mutantswitch.ReadFile(files.ReadFile, ", 1)
	files[filepath.Join("../..", switchPath, "switch.go")] = switchFile(scripts)
	return files, numbers
}

// switchFile is the package that knows which mutant is on.
func switchFile(scripts map[int][2]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package mutantswitch\n\nimport (\n\t\"os\"\n\t\"path\"\n\t\"strconv\"\n)\n\nvar On, _ = strconv.Atoi(os.Getenv(%q))\n\n", switchEnv)
	b.WriteString("var scripts = map[int][2]string{\n")
	for n, s := range scripts {
		fmt.Fprintf(&b, "\t%d: {%q, %q},\n", n, s[0], s[1])
	}
	b.WriteString("}\n\nfunc ReadFile(read func(string) ([]byte, error), name string) ([]byte, error) {\n")
	b.WriteString("\tif s, ok := scripts[On]; ok && s[0] == path.Base(name) {\n\t\treturn []byte(s[1]), nil\n\t}\n\treturn read(name)\n}\n")
	return b.String()
}

// imported adds the import of the switch to a file.
func imported(text string) string {
	at := packageClause.FindStringIndex(text)[1]
	return text[:at] + fmt.Sprintf("\n\nimport %q\n", "github.com/lockerproject/locker/"+switchPath) + text[at:]
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// copies returns a file with copies of the functions that mutants change, and which of the
// mutants those are.
func copies(t *testing.T, text string, all []mutant, in []int) (changed string, which []int) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var edits []edit
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		var here []int
		for _, n := range in {
			if at := strings.Index(text, all[n-1].old); at > offset(f.Body.Lbrace) && at+len(all[n-1].old) <= offset(f.Body.Rbrace) {
				here = append(here, n)
			}
		}
		if len(here) > 0 {
			edits = append(edits, edit{offset(f.Pos()), offset(f.End()), versions(text, f, offset, all, here)})
			which = append(which, here...)
		}
	}
	slices.Reverse(edits)
	for _, e := range edits {
		text = text[:e.from] + e.text + text[e.to:]
	}
	return imported(text), which
}

// versions returns the source of a function that calls one of its copies, and the copies.
func versions(text string, f *ast.FuncDecl, offset func(token.Pos) int, all []mutant, here []int) string {
	source := func(n ast.Node) string { return text[offset(n.Pos()):offset(n.End())] }
	head, receiver := "func ", ""
	if f.Recv != nil {
		head, receiver = "func (mutantSelf "+source(f.Recv.List[0].Type)+") ", "mutantSelf."
	}
	types := ""
	if f.Type.TypeParams != nil {
		types = source(f.Type.TypeParams)
	}
	var params, args, names []string
	for _, field := range f.Type.Params.List {
		for range max(1, len(field.Names)) {
			name := "mutantArg" + strconv.Itoa(len(params))
			params = append(params, name+" "+source(field.Type))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				name += "..."
			}
			args = append(args, name)
		}
	}
	if f.Type.TypeParams != nil {
		for _, field := range f.Type.TypeParams.List {
			for _, n := range field.Names {
				names = append(names, n.Name)
			}
		}
	}
	results, answer := "", ""
	if f.Type.Results != nil {
		results, answer = " "+source(f.Type.Results), "return "
	}
	call := func(n int) string {
		instance := ""
		if len(names) > 0 {
			instance = "[" + strings.Join(names, ", ") + "]"
		}
		return fmt.Sprintf("%s%s%sMutant%d%s(%s)", answer, receiver, f.Name.Name, n, instance, strings.Join(args, ", "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s%s(%s)%s {\n\tswitch mutantswitch.On {\n", head, f.Name.Name, types, strings.Join(params, ", "), results)
	for _, n := range here {
		fmt.Fprintf(&b, "\tcase %d:\n\t\t%s\n", n, call(n))
	}
	fmt.Fprintf(&b, "\tdefault:\n\t\t%s\n\t}\n}\n", call(0))
	from, name, to := offset(f.Pos()), offset(f.Name.End()), offset(f.End())
	for _, n := range append([]int{0}, here...) {
		body := text[name:to]
		if n > 0 {
			body = strings.Replace(body, all[n-1].old, all[n-1].new, 1)
		}
		fmt.Fprintf(&b, "\n%sMutant%d%s\n", text[from:name], n, body)
	}
	return b.String()
}

// A function calls the copy of the mutant that is on, whatever its signature is.
func TestCopies(t *testing.T) {
	const text = `package p

import "fmt"

func (s *T[K]) f(a, b int, rest ...string) (n int, err error) {
	return a + b, nil
}

func g[K any, V comparable](K, V) { fmt.Println() }
`
	all := []mutant{{name: "of f", old: "a + b", new: "a - b"}, {name: "of g", old: "fmt.Println()", new: "panic(1)"}}
	changed, which := copies(t, text, all, []int{1, 2})
	if _, err := parser.ParseFile(token.NewFileSet(), "", changed, 0); err != nil || !slices.Equal(which, []int{1, 2}) {
		t.Errorf("mutants %v, %v:\n%s", which, err, changed)
	}
	for _, want := range []string{
		"return mutantSelf.fMutant1(mutantArg0, mutantArg1, mutantArg2...)\n\tdefault:\n\t\treturn mutantSelf.fMutant0(",
		"func (s *T[K]) fMutant0(a, b int, rest ...string) (n int, err error) {\n\treturn a + b, nil",
		"func (s *T[K]) fMutant1(a, b int, rest ...string) (n int, err error) {\n\treturn a - b, nil",
		"gMutant2[K, V](mutantArg0, mutantArg1)",
		"func gMutant2[K any, V comparable](K, V) { panic(1) }",
	} {
		if !strings.Contains(changed, want) {
			t.Errorf("%q is not in:\n%s", want, changed)
		}
	}
}
