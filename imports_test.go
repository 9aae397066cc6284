package locker_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/lockerproject/locker"

// What each folder may import of this module and of others; tests are free.
// The first rule that fits the folder holds.
var layers = []struct {
	folder string // of the file, with its subfolders if it ends in /
	may    func(folder, path string) bool
	why    string
}{
	{"internal/retry", func(_, p string) bool { return standard(p) }, "every layer imports it"},
	{"internal/whole", func(_, p string) bool { return standard(p) }, "the core and what takes several locks import it"},
	{"internal/marked", func(_, p string) bool { return standard(p) }, "the core and the driver interface import it"},
	{"internal/machine", func(_, p string) bool { return standard(p) }, "a driver imports it"},
	{
		".", func(_, p string) bool {
			return standard(p) || p == module+"/driver" || p == module+"/internal/marked" || p == module+"/internal/whole"
		},
		"the core knows no store and depends on the standard library alone",
	},
	{
		"driver", func(_, p string) bool { return standard(p) || p == module+"/internal/marked" },
		"the driver interface depends on the standard library alone",
	},
	{
		"driver/all", func(_, p string) bool { return under(p, "driver") || p == module+"/compose" },
		"this package imports every driver and does nothing else",
	},
	{
		"compose/", func(_, p string) bool { return standard(p) || p == module+"/driver" },
		"drivers made of drivers know the driver interface, and no driver",
	},
	{"driver/internal/", func(_, p string) bool {
		return !own(p) || p == module+"/driver" || under(p, "driver/internal")
	}, "what drivers share knows the driver interface, and no driver"},
	{"driver/", func(folder, p string) bool {
		if strings.HasPrefix(p, "github.com/aws/") {
			return folder == "driver/dynamodb" // large, and for one store
		}
		simulated := folder == "driver/sqlite" && p == module+"/internal/machine" // it has no server that the simulation could stand in for
		return !own(p) || p == module+"/driver" || under(p, "driver/internal") || under(p, folder) || simulated
	}, "a driver imports the driver interface, never the core nor another driver"},
	{"conformance/", func(_, p string) bool {
		return standard(p) || p == "github.com/anishathalye/porcupine" ||
			slices.Contains([]string{module, module + "/driver", module + "/internal/probe"}, p) || under(p, "conformance")
	}, "the suite depends on the core, the driver interface, porcupine and the standard library"},
	{
		"election", func(_, p string) bool { return standard(p) || p == module },
		"an election is made of the public contract alone",
	},
	{
		"coord", func(_, p string) bool { return standard(p) || p == module },
		"coordination is made of the public contract alone",
	},
	{
		"observe/slog", func(_, p string) bool { return standard(p) || p == module },
		"an audit log is made of events and the standard library",
	},
	{"observe/otel", func(_, p string) bool {
		return standard(p) || p == module || strings.HasPrefix(p, "go.opentelemetry.io/otel") && !strings.Contains(p, "/sdk")
	}, "telemetry depends on events and on OpenTelemetry's interfaces"},
	{
		"stripe", func(_, p string) bool { return standard(p) || p == module || p == module+"/internal/whole" },
		"stripes are made of the public contract, and the wait limit counts for all that one call asks for",
	},
	{
		"lockertest", func(_, p string) bool {
			return standard(p) || p == module || p == module+"/driver" || p == module+"/driver/memory"
		},
		"lockertest is a Locker on the memory driver",
	},
	{
		"fence", func(_, p string) bool { return standard(p) || p == module || p == module+"/driver" },
		"a fence is made of the public contract alone",
	},
}

// pauses is the package that every layer may import.
const pauses = module + "/internal/retry"

func standard(path string) bool { return !strings.Contains(strings.SplitN(path, "/", 2)[0], ".") }
func own(path string) bool      { return path == module || strings.HasPrefix(path, module+"/") }
func under(path, folder string) bool {
	return strings.HasPrefix(path, module+"/"+folder+"/") || path == module+"/"+folder
}

func TestLayers(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && file != "." || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		checked++
		return checkImports(t, filepath.ToSlash(file))
	})
	if err != nil || checked == 0 {
		t.Fatalf("checked %d files: %v", checked, err)
	}
}

func checkImports(t *testing.T, file string) error {
	folder := filepath.ToSlash(filepath.Dir(file))
	for _, l := range layers {
		if folder != l.folder && !(strings.HasSuffix(l.folder, "/") && strings.HasPrefix(folder+"/", l.folder)) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, im := range f.Imports {
			path, _ := strconv.Unquote(im.Path.Value)
			if path != pauses && !l.may(folder, path) {
				t.Errorf("%s imports %s: %s", file, path, l.why)
			}
		}
		return nil
	}
	return nil
}
