package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeNames offers the names that somebody holds or waits for, if the store
// answers within a second. After -- the shell completes.
func (a *app) completeNames(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	if n := len(a.args); n > 0 && slices.Contains(a.args[:n-1], "--") { // cobra does not report it
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	a.urls = slices.Compact(a.urls) // cobra parses the flags twice
	client, err := a.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	all, err := client.List(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, name := range all {
		if strings.HasPrefix(name, begun) && printable(name) == name {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
