package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockerproject/locker/conformance"
)

// Each rule of package driver and of this package has a case, and cases cite no
// others.
func TestEveryRuleIsCited(t *testing.T) {
	cited := make(map[string][]string)
	names := make(map[string]bool)
	for _, c := range conformance.Cases() {
		if names[c.String()] {
			t.Errorf("two cases are called %s", c)
		}
		names[c.String()] = true
		if c.Explain == "" || len(c.Rules) == 0 {
			t.Errorf("%s says nothing, or cites no rule", c)
		}
		for _, r := range c.Rules {
			cited[r] = append(cited[r], c.String())
		}
	}
	var rules []string
	for d := range 20 {
		rules = append(rules, fmt.Sprintf("D%d", d+1))
	}
	for s := range 10 {
		rules = append(rules, fmt.Sprintf("C%d", s+1))
	}
	for _, r := range rules {
		if len(cited[r]) == 0 {
			t.Errorf("no case proves %s", r)
		}
		t.Logf("%-6s %s", r, strings.Join(cited[r], " "))
		delete(cited, r)
	}
	for r, by := range cited {
		t.Errorf("%s is cited by %s, and is no rule", r, by)
	}
}
