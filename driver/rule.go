package driver

// Grantable reports whether ticket i of a queue may be held. The queue is in
// order and contains live tickets only. Whether they are held does not matter.
//
//   - An exclusive ticket is granted when no live ticket is ahead of it.
//   - A shared ticket with limit L is granted when no live exclusive ticket is
//     ahead of it and fewer than L live shared tickets are (no limit: any
//     number).
//
// Mutex, readers/writer lock and semaphore are all this rule.
func Grantable(queue []Ticket, i int) bool {
	t := queue[i]
	if !t.Shared {
		return i == 0
	}
	for _, ahead := range queue[:i] {
		if !ahead.Shared {
			return false
		}
	}
	return t.Limit == 0 || i < t.Limit
}

// Granted reports for each ticket of a queue whether it is [Grantable]. It takes
// one pass.
func Granted(queue []Ticket) []bool {
	granted := make([]bool, len(queue))
	for i, t := range queue {
		if !t.Shared {
			granted[i] = i == 0
			break // everything behind an exclusive ticket is blocked
		}
		granted[i] = t.Limit == 0 || i < t.Limit
	}
	return granted
}
