package locker_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unusable are the names that golang.org/x/mod/module.CheckFilePath refuses: those of Windows'
// devices, and those with a character that some file system does not take.
var unusable = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)|[^\pL0-9!#$%&()+,\-.=@\[\]^_{}~ ]|\.$`)

// A module that has a file with such a name cannot be downloaded, by anybody.
func TestFileNames(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
			return nil
		case d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case unusable.MatchString(d.Name()):
			t.Errorf("%s: no module may have a file of that name", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
