package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// arguments checks how many arguments a verb is given.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n < least || n > most {
			return fmt.Errorf("got %s: want %s", count(n, "argument", "arguments"), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		}
		return nil
	}
}

// noneEmpty refuses a flag whose text is empty, as that of a variable of a shell is that is not
// set: it would be taken for one that was left out. A note may be empty, and an expression that all match.
func noneEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if err == nil && f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "note" && f.Name != "case" {
			err = usage(fmt.Errorf("--%s is empty", f.Name))
		}
	})
	return err
}

// knownVerb refuses what is no verb, and proposes those whose names are nearly the same.
func knownVerb(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if like := root.SuggestionsFor(args[0]); len(like) > 0 {
		return exit(ExitUsage, err, root.Name()+" "+strings.Join(like, ", "+root.Name()+" "))
	}
	return err
}

// flagOfFlock says what to type instead of -c, which flock has.
func flagOfFlock(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedName() == "c" {
		return exit(ExitUsage, err, cmd.CommandPath()+" NAME -- sh -c 'TEXT'")
	}
	return err
}
