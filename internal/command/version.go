package command

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker/driver"
)

// version is what locker version says, in the order in which it says it.
type version struct {
	Version  string   `json:"version"`
	Revision string   `json:"revision,omitempty"` // of the sources
	Modified bool     `json:"modified,omitempty"` // they were changed after it
	Time     string   `json:"time,omitempty"`     // of the revision
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Stores   []string `json:"stores"` // the schemes of URLs
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version, and the stores that it knows",
		Example: "  locker version\n  locker version --json",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			return a.print(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n%s %s\nstores: %s\n", v.line(), v.Go, v.Platform, strings.Join(v.Stores, ", "))
				return err
			})
		},
	}
}

// line is what locker --version prints.
func (v version) line() string {
	text := "locker " + v.Version
	if v.Revision != "" {
		text += fmt.Sprintf(" (%.12s)", v.Revision)
	}
	return text
}

func readVersion() version {
	v := version{
		Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Stores: driver.Schemes(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "vcs.time":
			v.Time = s.Value
		}
	}
	return v
}
