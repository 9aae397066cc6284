package redisline

// The scripts of one node of Redlock; lua/redlock_line.lua describes the line.
var (
	RedlockAcquire = load("redlock_acquire")
	RedlockYield   = load("redlock_yield")
	RedlockRelease = load("redlock_release")
	RedlockRenew   = load("redlock_renew")
	RedlockBeat    = load("redlock_beat")
	RedlockBreak   = load("redlock_break")
	RedlockInspect = load("redlock_inspect")
)

// Text is what EVAL and SCRIPT LOAD take.
func (s *Script) Text() string { return s.source }

// SHA is the name by which Redis knows the script.
func (s *Script) SHA() string { return s.sha }
