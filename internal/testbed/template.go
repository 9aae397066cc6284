package testbed

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
)

// fromTemplate fills the data folder dst with what fill would put there. The
// first run for a program (the first after its upgrade) keeps a copy of the
// result in the cache folder, since databases take seconds to make one; later
// runs, in whatever process, copy that.
func fromTemplate(name, program, dst string, fill func(dir string) error) error {
	key, err := fingerprint(program)
	if err != nil {
		return err
	}
	template := filepath.Join(cacheDir("template"), name+"-"+key)
	if _, err := os.Stat(template); err == nil {
		return copyFolder(template, dst)
	}
	if err := fill(dst); err != nil {
		return err
	}
	return keepTemplate(dst, template)
}

// keepTemplate copies dir so that the template is there as a whole or not at
// all, whoever else makes the same one.
func keepTemplate(dir, template string) error {
	if os.MkdirAll(filepath.Dir(template), 0o755) != nil {
		return nil // nowhere to keep it: it is made anew each time
	}
	tmp, err := os.MkdirTemp(filepath.Dir(template), "new-")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(tmp)
	if err := copyFolder(dir, filepath.Join(tmp, "data")); err != nil {
		return err
	}
	_ = os.Rename(filepath.Join(tmp, "data"), template) // fails when another process was first
	return nil
}

// copyFolder keeps owners and modes, on which databases insist, and holes.
func copyFolder(src, dst string) error { return run(exec.Command("cp", "-a", src, dst)) }

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

// fingerprint changes when the program does, or the user who runs it.
func fingerprint(program string) (string, error) {
	st, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	fmt.Fprint(h, program, st.Size(), st.ModTime().UnixNano(), os.Getuid())
	return fmt.Sprintf("%x", h.Sum64()), nil
}
