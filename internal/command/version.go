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
	Version  string   `json:"version"` // names the commit, if it is not a release
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
			a.print(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s\n%s %s\nstores: %s\n", v.line(), v.Go, v.Platform, strings.Join(v.Stores, ", "))
			})
			return nil
		},
	}
}

// line is what locker --version prints.
func (v version) line() string { return "locker " + v.Version }

func readVersion() version {
	v := version{
		Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Stores: driver.Schemes(),
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	return v
}
