package driver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxSecret is longer than any password or token. A longer file is a mistake.
const maxSecret = 64 << 10

// Secret is Param for the name of a file that contains a password or token, so
// that the URL need not contain it. It returns the only line of the file, without
// its end. If the URL does not have the parameter, it returns given, the secret in
// the URL itself. Both together are an error. The file is read now. No error shows
// its content.
func (u *URL) Secret(name, given string) string {
	file := u.Param(name, "")
	switch {
	case !u.query.Has(name):
		return given
	case given != "":
		u.Refuse(fmt.Errorf("parameter %s: the URL has the secret itself too: want one of them", name))
		return ""
	}
	secret, err := readSecret(file)
	if err != nil {
		u.Refuse(fmt.Errorf("parameter %s: %w", name, err))
	}
	return secret
}

func readSecret(file string) (string, error) {
	if file == "" {
		return "", errors.New("want the name of a file")
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	switch {
	case secret == "":
		return "", fmt.Errorf("file %s is empty", file)
	case len(b) > maxSecret || strings.ContainsAny(secret, "\r\n\x00"):
		return "", fmt.Errorf("file %s: want one line with the secret and nothing else", file)
	}
	return secret, nil
}
