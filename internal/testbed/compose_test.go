package testbed

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// composed are the services of docker-compose.yml: the text of each, and of what it merges.
func composed(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	services, parts := map[string]string{}, map[string]string{}
	before, after, _ := strings.Cut(string(text), "\nservices:\n")
	split(parts, regexp.MustCompile(`(?m)^x-([a-z]+): &[a-z]+\n`), before)
	split(services, regexp.MustCompile(`(?m)^  ([a-z0-9-]+):\n`), after)
	merge := regexp.MustCompile(`<<: \*([a-z]+)`)
	for name, text := range services {
		for found := merge.FindStringSubmatch(text); found != nil; found = merge.FindStringSubmatch(text) {
			text = strings.Replace(text, found[0], parts[found[1]], 1)
		}
		services[name] = text
	}
	return services
}

// split puts what follows each head into a map, by the name in the head.
func split(into map[string]string, head *regexp.Regexp, text string) {
	heads := head.FindAllStringSubmatchIndex(text, -1)
	for i, at := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		into[text[at[2]:at[3]]] = text[at[1]:end]
	}
}

// first is what the first group of an expression matches in a service.
func first(expression, text string) string {
	if found := regexp.MustCompile(`(?m)` + expression).FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

func profileOf(text string) string { return first(`^ +profiles: \[([a-z]+)\]$`, text) }

// Every driver whose store is a server has its store there.
func TestComposeHasAllStores(t *testing.T) {
	have := map[string]bool{}
	for name, text := range composed(t) {
		profile := profileOf(text)
		if profile == "" || !strings.HasPrefix(name, profile) {
			t.Errorf("%s: profile %q: want one, which its name starts with", name, profile)
		}
		have[profile] = true
	}
	drivers, err := filepath.Glob("../../driver/*/driver.go")
	if err != nil || len(drivers) == 0 {
		t.Fatalf("drivers %q: %v", drivers, err)
	}
	for _, file := range drivers {
		name := filepath.Base(filepath.Dir(file))
		if embedded := []string{"memory", "sqlite"}; !have[name] && !slices.Contains(embedded, name) {
			t.Errorf("driver/%s has no profile", name)
		}
	}
}

var (
	pinned   = regexp.MustCompile(`^[a-z0-9./-]+:v?[0-9][0-9.]*(-alpine)?$`)
	quoted   = regexp.MustCompile(`"[^"]*"`)
	loopback = regexp.MustCompile(`^"127\.0\.0\.1:\$\{LOCKER_[A-Z]+(_[A-Z]+)?_PORT(_[0-9])?:-([0-9]+)\}:`)
)

// Every service is pinned, checked, in memory and on loopback alone, at ports
// that can be changed and that no two take by default; each store says its URL.
func TestComposeServices(t *testing.T) {
	taken, urls := map[string]string{}, map[string]int{}
	for name, text := range composed(t) {
		if image := first(`^ +image: (\S+)$`, text); !pinned.MatchString(image) {
			t.Errorf("%s: image %q is not pinned", name, image)
		}
		for _, key := range []string{"tmpfs", "healthcheck", "test"} {
			if first(`^ +(`+key+`):`, text) == "" {
				t.Errorf("%s: no %s", name, key)
			}
		}
		ports := quoted.FindAllString(first(`^    ports:(.*(?:\n      - .*)*)`, text), -1)
		if len(ports) == 0 {
			t.Errorf("%s: no ports", name)
		}
		for _, port := range ports {
			found := loopback.FindStringSubmatch(port)
			if found == nil {
				t.Errorf("%s: port %s: want 127.0.0.1:${LOCKER_…_PORT:-number}:…", name, port)
				continue
			}
			if by := taken[found[3]]; by != "" {
				t.Errorf("%s: port %s is that of %s", name, port, by)
			}
			taken[found[3]] = name
		}
		urls[profileOf(text)] += strings.Count(text, "locker.url:")
	}
	for profile, n := range urls {
		if n != 1 {
			t.Errorf("%s: %d services have a label locker.url, want one", profile, n)
		}
	}
}

// docker-compose.yml alone names the stores' images, so that none differs.
func TestImagesAreNamedOnce(t *testing.T) {
	files := []string{"../../Makefile"}
	for _, pattern := range []string{"../../scripts/*", "../../.github/workflows/*", "*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	services := composed(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil && !strings.Contains(err.Error(), "is a directory") {
			t.Fatal(err)
		}
		for name, service := range services {
			repository, _, _ := strings.Cut(first(`^ +image: (\S+)$`, service), ":")
			if named := regexp.MustCompile(`\b` + regexp.QuoteMeta(repository) + `:v?[0-9]`); named.Match(text) {
				t.Errorf("%s names the image of %s: %s", file, name, named.Find(text))
			}
		}
	}
}
