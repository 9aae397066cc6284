package sim

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
)

// interpreter runs the scripts of all servers, one at a time, as Redis does: Lua 5.1, with
// the functions of the table "redis" that our scripts use.
type interpreter struct {
	mu      sync.Mutex
	l       *lua.LState
	scripts map[string]*lua.LFunction // by hash
	hashes  map[string]string         // by source
	run     *redisRun                 // whose script runs
}

var scripts = newInterpreter()

func newInterpreter() *interpreter {
	in := &interpreter{l: lua.NewState(lua.Options{SkipOpenLibs: true}), scripts: make(map[string]*lua.LFunction), hashes: make(map[string]string)}
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		in.l.Push(in.l.NewFunction(open))
		in.l.Push(lua.LString(name))
		in.l.Call(1, 0)
	}
	in.l.SetGlobal("redis", in.l.SetFuncs(in.l.NewTable(), map[string]lua.LGFunction{
		"call":    func(l *lua.LState) int { return in.call(l, true) },
		"pcall":   func(l *lua.LState) int { return in.call(l, false) },
		"sha1hex": func(l *lua.LState) int { l.Push(lua.LString(hashed(l.CheckString(1)))); return 1 },
	}))
	return in
}

func hashed(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // it is the name that Redis knows a script by
	return hex.EncodeToString(sum[:])
}

// load compiles a script, and returns its hash.
func (in *interpreter) load(source string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	hash, known := in.hashes[source]
	if !known {
		hash = hashed(source)
		f, err := in.l.Load(strings.NewReader(source), hash)
		if err != nil {
			panic("sim: " + err.Error())
		}
		in.scripts[hash], in.hashes[source] = f, hash
	}
	return hash
}

// eval runs a script.
func (in *interpreter) eval(r *redisRun, hash string, keys, args []string) any {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.run = r
	in.l.SetGlobal("KEYS", in.table(keys))
	in.l.SetGlobal("ARGV", in.table(args))
	defer in.l.SetTop(0)
	if err := in.l.CallByParam(lua.P{Fn: in.scripts[hash], NRet: 1, Protect: true}); err != nil {
		if raised, ok := err.(*lua.ApiError); ok { //nolint:errorlint // it is what CallByParam returns
			if e, ok := answerOf(raised.Object).(redisError); ok {
				return e + redisError(" script: "+hash+", on @user_script:1.")
			}
		}
		return redisError("ERR " + strings.ReplaceAll(err.Error(), "\n", " ") + " script: " + hash + ", on @user_script:1.")
	}
	return answerOf(in.l.Get(-1))
}

func (in *interpreter) table(values []string) *lua.LTable {
	t := in.l.CreateTable(len(values), 0)
	for _, v := range values {
		t.Append(lua.LString(v))
	}
	return t
}

// call is redis.call, which raises errors, and redis.pcall, which returns them.
func (in *interpreter) call(l *lua.LState, raises bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch v := l.Get(i + 1).(type) {
		case lua.LString:
			args[i] = string(v)
		case lua.LNumber:
			args[i] = number(float64(v))
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	v := in.value(in.run.command(args))
	if t, ok := v.(*lua.LTable); ok && raises && t.RawGetString("err") != lua.LNil {
		l.Error(t, 1)
	}
	l.Push(v)
	return 1
}

// value is how a script sees an answer.
func (in *interpreter) value(answer any) lua.LValue {
	switch a := answer.(type) {
	case int64:
		return lua.LNumber(a)
	case string:
		return lua.LString(a)
	case []any:
		t := in.l.CreateTable(len(a), 0)
		for _, e := range a {
			t.Append(in.value(e))
		}
		return t
	case redisStatus:
		t := in.l.NewTable()
		t.RawSetString("ok", lua.LString(a))
		return t
	case redisError:
		t := in.l.NewTable()
		t.RawSetString("err", lua.LString(a))
		return t
	}
	return lua.LFalse
}

// answerOf is how Redis answers with what a script returns.
func answerOf(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return int64(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if e, ok := v.RawGetString("err").(lua.LString); ok {
			return redisError(e)
		}
		if s, ok := v.RawGetString("ok").(lua.LString); ok {
			return redisStatus(s)
		}
		all := []any{}
		for i := 1; v.RawGetInt(i) != lua.LNil; i++ {
			all = append(all, answerOf(v.RawGetInt(i)))
		}
		return all
	}
	return nil
}
