package command

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// durationFlag is a flag's value: 30s, 5m, or a bare number of seconds, as flock and sleep
// take it.
type durationFlag time.Duration

// addDuration adds a flag for a duration, whose default is the value that p points to.
// shorthand may be empty.
func addDuration(f *pflag.FlagSet, p *time.Duration, name, shorthand, usage string) {
	f.VarP((*durationFlag)(p), name, shorthand, usage)
}

// maxSeconds are a little less than the longest time.Duration.
const maxSeconds = 9e9

var errDuration = errors.New("want a time such as 30s or 5m, or a number of seconds")

func (d *durationFlag) Set(text string) error {
	if v, err := time.ParseDuration(text); err == nil {
		*d = durationFlag(v)
		return nil
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(s) || math.Abs(s) > maxSeconds {
		return errDuration
	}
	*d = durationFlag(s * float64(time.Second))
	return nil
}

func (d *durationFlag) String() string {
	if *d == 0 {
		return "" // a default of zero is not shown: what it means is in the usage
	}
	return time.Duration(*d).String()
}

func (d *durationFlag) Type() string { return "duration" }
