package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change of the code.
type mutant struct {
	id   int
	kind string // "omit" leaves a statement out, "true" and "false" fix a condition; and those of luaMutants
	at   string // file:line
	text string // of the statement or condition
}

// instrumenter rewrites a package so that each of its mutants is in it, and switched on by
// an environment variable: one build serves all.
type instrumenter struct {
	fset    *token.FileSet
	mutants []mutant
	last    int
	dropped map[int]bool // mutants that do not compile, as where a result is missing
}

// switches is the file that the package gets: the mutant in MUTANT is on, and those that a run
// comes by are written to the file in MUTANTS_SEEN.
const switches = `package %s

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

var (
	mutantOn, _ = strconv.Atoi(os.Getenv("MUTANT"))
	mutantsMu   sync.Mutex
	mutantsSeen = map[int]bool{}
)

func mutantSeen(id int) bool {
	if path := os.Getenv("MUTANTS_SEEN"); path != "" {
		mutantsMu.Lock()
		defer mutantsMu.Unlock()
		if !mutantsSeen[id] {
			mutantsSeen[id] = true
			f, _ := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			_, _ = f.WriteString(strconv.Itoa(id) + "\n")
			_ = f.Close()
		}
	}
	return id == mutantOn
}

func mutantOmits(id int) bool { return mutantSeen(id) }
func mutantTrue(id int, f func() bool) bool { return f() || mutantSeen(id) }
func mutantFalse(id int, f func() bool) bool { return f() && !mutantSeen(id) }

// mutantText reads an embedded file, or the text of its mutant that is on.
func mutantText(files fs.ReadFileFS, name string) ([]byte, error) {
	dir := filepath.Join(%q, name)
	mutants, _ := os.ReadDir(dir)
	on := ""
	for _, m := range mutants {
		if id, _ := strconv.Atoi(m.Name()); mutantSeen(id) {
			on = m.Name()
		}
	}
	if on == "" {
		return files.ReadFile(name)
	}
	return os.ReadFile(filepath.Join(dir, on))
}
`

// overlay writes the instrumented files of the package in dir to out, and returns the path of
// the overlay for the go command. Only the named files are changed; none: all.
func (in *instrumenter) overlay(dir, out string, names []string) (string, error) {
	for {
		path, err := in.write(dir, out, names)
		if err != nil {
			return "", err
		}
		cmd := exec.Command("go", "build", "-gcflags=-e", "-overlay", path, ".") //nolint:noctx // it ends with this process
		cmd.Dir = dir
		msg, err := cmd.CombinedOutput()
		if err == nil {
			return path, nil
		}
		if !in.drop(out, string(msg)) {
			return "", fmt.Errorf("the package does not compile:\n%s", msg)
		}
	}
}

var (
	errorAt = regexp.MustCompile(`(?m)([\w.-]+\.go):(\d+):\d+: `)
	switchd = regexp.MustCompile(`mutant(?:Omits|True|False)\((\d+)`)
)

// drop drops the mutants at the lines of compile errors; it reports whether there are any.
func (in *instrumenter) drop(out, msg string) (dropped bool) {
	for _, m := range errorAt.FindAllStringSubmatch(msg, -1) {
		src, err := os.ReadFile(filepath.Join(out, m[1]))
		if err != nil {
			continue
		}
		lines := strings.Split(string(src), "\n")
		n, _ := strconv.Atoi(m[2])
		for _, l := range lines[max(0, n-2):min(n, len(lines))] {
			for _, s := range switchd.FindAllStringSubmatch(l, -1) {
				id, _ := strconv.Atoi(s[1])
				dropped = dropped || !in.dropped[id]
				in.dropped[id] = true
			}
		}
	}
	return dropped
}

func (in *instrumenter) write(dir, out string, names []string) (string, error) {
	in.fset, in.mutants, in.last = token.NewFileSet(), nil, 0
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	put := func(name string, text []byte) error {
		to := filepath.Join(out, name)
		replace[filepath.Join(dir, name)] = to
		return os.WriteFile(to, text, 0o600)
	}
	pkg := ""
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		f, err := parser.ParseFile(in.fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		pkg = f.Name.Name
		if bytes.Contains(src, []byte("\n//go:embed")) {
			if err := put(name, bytes.ReplaceAll(src, []byte(" files.ReadFile("), []byte(" mutantText(files, "))); err != nil {
				return "", err
			}
		}
		// Comments would land in other places: build constraints and embedded files are left alone.
		if len(names) > 0 && !slices.Contains(names, name) || bytes.Contains(src, []byte("\n//go:")) || bytes.HasPrefix(src, []byte("//go:")) {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				in.body(fn.Type, fn.Body)
			}
		}
		f.Comments = nil
		var text bytes.Buffer
		if err := format.Node(&text, token.NewFileSet(), f); err != nil {
			return "", err
		}
		if err := put(name, text.Bytes()); err != nil {
			return "", err
		}
	}
	if err := in.texts(dir, out, names); err != nil {
		return "", err
	}
	if err := put("mutant_switches.go", fmt.Appendf(nil, switches, pkg, out)); err != nil {
		return "", err
	}
	j, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(out, "overlay.json")
	return path, os.WriteFile(path, j, 0o600)
}

// body changes the statements of a function. Its last return may be left out.
func (in *instrumenter) body(t *ast.FuncType, b *ast.BlockStmt) {
	in.stmts(b.List)
	if t.Results != nil {
		b.List = append(b.List, &ast.ExprStmt{X: call("panic", &ast.BasicLit{Kind: token.STRING, Value: `"a return was left out"`})})
	}
}

func (in *instrumenter) stmts(list []ast.Stmt) {
	for i := range list {
		list[i] = in.stmt(list[i])
	}
}

func (in *instrumenter) stmt(s ast.Stmt) ast.Stmt {
	text, at := source(s), s.Pos()
	switch x := s.(type) {
	case *ast.ExprStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt, *ast.IncDecStmt, *ast.ReturnStmt:
		in.exprs(s)
		return in.omit(s, at, text)
	case *ast.AssignStmt:
		in.exprs(s)
		if x.Tok != token.DEFINE {
			return in.omit(s, at, text)
		}
	case *ast.BranchStmt:
		if x.Tok == token.BREAK || x.Tok == token.CONTINUE {
			return in.omit(s, at, text)
		}
	case *ast.IfStmt:
		if x.Init != nil {
			in.exprs(x.Init)
		}
		x.Cond = in.cond(x.Cond)
		in.stmts(x.Body.List)
		if x.Else != nil {
			x.Else = in.stmt(x.Else)
		}
	case *ast.ForStmt:
		in.stmts(x.Body.List)
	case *ast.RangeStmt:
		in.stmts(x.Body.List)
	case *ast.BlockStmt:
		in.stmts(x.List)
	case *ast.LabeledStmt:
		x.Stmt = in.stmt(x.Stmt)
	case *ast.SwitchStmt:
		for _, c := range x.Body.List {
			clause := c.(*ast.CaseClause) //nolint:forcetypeassert // go/ast says so
			for i := range clause.List {
				if x.Tag == nil {
					clause.List[i] = in.cond(clause.List[i])
				}
			}
			in.stmts(clause.Body)
		}
	case *ast.TypeSwitchStmt:
		for _, c := range x.Body.List {
			in.stmts(c.(*ast.CaseClause).Body) //nolint:forcetypeassert // go/ast says so
		}
	case *ast.SelectStmt:
		for _, c := range x.Body.List {
			in.stmts(c.(*ast.CommClause).Body) //nolint:forcetypeassert // go/ast says so
		}
	}
	return s
}

// exprs changes the functions in a statement, and the conditions that it returns or assigns.
func (in *instrumenter) exprs(s ast.Stmt) {
	ast.Inspect(s, func(n ast.Node) bool {
		f, ok := n.(*ast.FuncLit)
		if ok {
			in.body(f.Type, f.Body)
		}
		return !ok
	})
	var results []ast.Expr
	switch x := s.(type) {
	case *ast.ReturnStmt:
		results = x.Results
	case *ast.AssignStmt:
		results = x.Rhs
	}
	for _, e := range results {
		in.operands(e)
	}
}

// cond fixes a condition, and the operands of && and || in it.
func (in *instrumenter) cond(e ast.Expr) ast.Expr {
	text, at := source(e), e.Pos()
	in.operands(e)
	return in.fix(in.fix(e, "true", at, text), "false", at, text)
}

// operands fixes operands to what leaves the result to the other one.
func (in *instrumenter) operands(e ast.Expr) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		in.operands(x.X)
	case *ast.BinaryExpr:
		if neutral, ok := map[token.Token]string{token.LAND: "true", token.LOR: "false"}[x.Op]; ok {
			for _, o := range []*ast.Expr{&x.X, &x.Y} {
				text, at := source(*o), (*o).Pos()
				in.operands(*o)
				*o = in.fix(*o, neutral, at, text)
			}
		}
	}
}

func (in *instrumenter) add(kind string, at token.Pos, text string) (id int, ok bool) {
	in.last++
	p := in.fset.Position(at)
	m := mutant{in.last, kind, fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line), text}
	if in.dropped[m.id] {
		return 0, false
	}
	in.mutants = append(in.mutants, m)
	return m.id, true
}

func (in *instrumenter) omit(s ast.Stmt, at token.Pos, text string) ast.Stmt {
	id, ok := in.add("omit", at, text)
	if !ok {
		return s
	}
	return &ast.IfStmt{Cond: &ast.UnaryExpr{Op: token.NOT, X: call("mutantOmits", number(id))}, Body: &ast.BlockStmt{List: []ast.Stmt{s}}}
}

func (in *instrumenter) fix(e ast.Expr, to string, at token.Pos, text string) ast.Expr {
	id, ok := in.add(to, at, text)
	if !ok {
		return e
	}
	returns := &ast.BlockStmt{List: []ast.Stmt{&ast.ReturnStmt{Results: []ast.Expr{e}}}}
	result := &ast.FieldList{List: []*ast.Field{{Type: ast.NewIdent("bool")}}}
	f := &ast.FuncLit{Type: &ast.FuncType{Params: &ast.FieldList{}, Results: result}, Body: returns}
	return call(map[string]string{"true": "mutantTrue", "false": "mutantFalse"}[to], number(id), f)
}

func call(name string, args ...ast.Expr) *ast.CallExpr {
	return &ast.CallExpr{Fun: ast.NewIdent(name), Args: args}
}

func number(i int) ast.Expr { return &ast.BasicLit{Kind: token.INT, Value: strconv.Itoa(i)} }

// source is the text of a statement or expression, in a line.
func source(n ast.Node) string {
	var b bytes.Buffer
	_ = format.Node(&b, token.NewFileSet(), n)
	text := strings.Join(strings.Fields(b.String()), " ")
	if runes := []rune(text); len(runes) > 100 {
		return string(runes[:99]) + "…"
	}
	return text
}
