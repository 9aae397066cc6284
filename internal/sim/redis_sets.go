package sim

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

func zadd(r *redisRun, a []string) any {
	absent := strings.EqualFold(a[1], "NX")
	if absent {
		a = slices.Delete(slices.Clone(a), 1, 2)
	}
	if len(a)%2 == 0 {
		return errSyntax
	}
	score, bad := strconv.ParseFloat(a[1], 64)
	if bad != nil {
		return errFloat
	}
	z, err := contents(r, a[0], true, zsetOf)
	if err != nil {
		return err
	}
	_, there := z[a[2]]
	if !there || !absent {
		z[a[2]] = score
	}
	if there {
		return int64(0)
	}
	return int64(1)
}

func zscore(r *redisRun, a []string) any {
	z, err := contents(r, a[0], false, zsetOf)
	if score, ok := z[a[1]]; ok {
		return number(score)
	}
	return err
}

// number is how Redis shows a double: %.17g.
func number(f float64) string { return strconv.FormatFloat(f, 'g', 17, 64) }

func zcard(r *redisRun, a []string) any {
	z, err := contents(r, a[0], false, zsetOf)
	if err != nil {
		return err
	}
	return int64(len(z))
}

// member is an element of a sorted set.
type member struct {
	name  string
	score float64
}

func sorted(z map[string]float64) (all []member) {
	for name, score := range z {
		all = append(all, member{name, score})
	}
	slices.SortFunc(all, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name))
	})
	return all
}

// byScore returns the members between two scores.
func byScore(z map[string]float64, from, to string) ([]member, any) {
	bound := func(s string) (f float64, open bool, ok bool) {
		s, open = strings.CutPrefix(s, "(")
		f, err := strconv.ParseFloat(s, 64)
		return f, open, err == nil
	}
	least, open1, ok1 := bound(from)
	most, open2, ok2 := bound(to)
	if !ok1 || !ok2 {
		return nil, redisError("ERR min or max is not a float")
	}
	return slices.DeleteFunc(sorted(z), func(m member) bool {
		return m.score < least || open1 && m.score == least || m.score > most || open2 && m.score == most
	}), nil
}

func zcount(r *redisRun, a []string) any {
	z, err := contents(r, a[0], false, zsetOf)
	if err != nil {
		return err
	}
	all, err := byScore(z, a[1], a[2])
	if err != nil {
		return err
	}
	return int64(len(all))
}

// list answers with members.
func list(all []member, scores bool) any {
	out := []any{}
	for _, m := range all {
		if out = append(out, m.name); scores {
			out = append(out, number(m.score))
		}
	}
	return out
}

func zrange(r *redisRun, a []string, reverse bool) any {
	z, err := contents(r, a[0], false, zsetOf)
	if err != nil {
		return err
	}
	from, err1 := strconv.Atoi(a[1])
	to, err2 := strconv.Atoi(a[2])
	if err1 != nil || err2 != nil {
		return errNumber
	}
	all := sorted(z)
	if reverse {
		slices.Reverse(all)
	}
	index := func(i int) int {
		if i < 0 {
			i += len(all)
		}
		return min(max(i, 0), len(all))
	}
	first, last := index(from), index(to)
	if to >= 0 || -to <= len(all) {
		last = min(last+1, len(all))
	}
	return list(all[min(first, last):last], len(a) > 3)
}

func zrangeByScore(r *redisRun, a []string) any {
	z, err := contents(r, a[0], false, zsetOf)
	if err != nil {
		return err
	}
	all, err := byScore(z, a[1], a[2])
	if err != nil {
		return err
	}
	scores := false
	for i := 3; i < len(a); i++ {
		switch strings.ToUpper(a[i]) {
		case "WITHSCORES":
			scores = true
		case "LIMIT":
			from, err1 := strconv.Atoi(a[i+1])
			n, err2 := strconv.Atoi(a[i+2])
			if err1 != nil || err2 != nil {
				return errNumber
			}
			from = min(from, len(all))
			all, i = all[from:min(len(all), from+n)], i+2
		default:
			return errSyntax
		}
	}
	return list(all, scores)
}
