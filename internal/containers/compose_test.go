package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// profiles are those of docker-compose.yml, by the store's name.
func profiles(t *testing.T) map[string][]service {
	t.Helper()
	services, err := readServices()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]service{}
	for name, s := range services {
		if len(s.Profiles) != 1 || !strings.HasPrefix(name, s.Profiles[0]) {
			t.Errorf("%s: profiles %q: want one, which its name starts with", name, s.Profiles)
			continue
		}
		all[s.Profiles[0]] = append(all[s.Profiles[0]], s)
	}
	return all
}

// Every driver whose store is a server has its store there, and the testbed's
// containers are of these.
func TestComposeHasAllStores(t *testing.T) {
	have := profiles(t)
	for name := range stores {
		if have[name] == nil {
			t.Errorf("%s is no profile", name)
		}
	}
	drivers, err := filepath.Glob("../../driver/*/driver.go")
	if err != nil || len(drivers) == 0 {
		t.Fatalf("drivers %q: %v", drivers, err)
	}
	for _, file := range drivers {
		name := filepath.Base(filepath.Dir(file))
		if embedded := []string{"memory", "sqlite"}; have[name] == nil && !slices.Contains(embedded, name) {
			t.Errorf("driver/%s has no profile", name)
		}
	}
}

var (
	pinned   = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9][0-9.]*(-alpine)?$`)
	loopback = regexp.MustCompile(`^127\.0\.0\.1:\$\{LOCKER_[A-Z]+(_[A-Z]+)?_PORT(_[0-9])?:-[0-9]+\}:`)
)

// Every service is pinned, checked, in memory and on loopback alone, at ports
// that can be changed and that no two take by default; each store says its URL.
func TestComposeServices(t *testing.T) {
	taken := map[string]string{}
	for profile, services := range profiles(t) {
		urls := 0
		for _, s := range services {
			if !pinned.MatchString(s.Image) {
				t.Errorf("%s: image %q is not pinned", profile, s.Image)
			}
			if s.Tmpfs == nil || s.HealthCheck.Test == nil || len(s.Ports) == 0 {
				t.Errorf("%s: tmpfs %v, health check %v, ports %v", profile, s.Tmpfs, s.HealthCheck.Test, s.Ports)
			}
			for _, port := range s.Ports {
				if !loopback.MatchString(port) {
					t.Errorf("%s: port %q: want 127.0.0.1:${LOCKER_…_PORT:-number}:…", profile, port)
					continue
				}
				number := port[strings.Index(port, ":-")+2 : strings.IndexByte(port, '}')]
				if taken[number] != "" {
					t.Errorf("%s: port %s is that of %s", profile, number, taken[number])
				}
				taken[number] = profile
			}
			if s.Labels["locker.url"] != "" {
				urls++
			}
		}
		if urls != 1 {
			t.Errorf("%s: %d services have a label locker.url, want one", profile, urls)
		}
	}
}

// docker-compose.yml alone names the stores' images, so that none differs.
func TestImagesAreNamedOnce(t *testing.T) {
	services, err := readServices()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"../../Makefile"}
	for _, pattern := range []string{"../../scripts/*", "../../.github/workflows/*", "../testbed/*", "*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !strings.Contains(err.Error(), "is a directory") {
			t.Fatal(err)
		}
		for name, s := range services {
			repository, _, _ := strings.Cut(s.Image, ":")
			if named := regexp.MustCompile(`\b` + regexp.QuoteMeta(repository) + `:v?[0-9]`); named.Match(text) {
				t.Errorf("%s names the image of %s: %s", file, name, named.Find(text))
			}
		}
	}
}
