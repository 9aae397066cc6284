//go:build !unix

package main

import (
	"errors"
	"os"
)

func pause(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
