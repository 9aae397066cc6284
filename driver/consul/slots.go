package consul

// A slot is what makes the key of a ticket its own among those of its session and
// name. Slots are used again: Consul keeps a tombstone for a quarter of an hour
// for every different key that was deleted, and reading a prefix goes through
// the tombstones below it. A hot name would soon be slow to read if each ticket
// had a key of its own.
//
// They are used in turn, though, and not the same again at once: so a key that
// is still there is nearly always still the same ticket, and who only knows the
// keys can tell who has gone.
const slotTurns = 4

// slots are those of one session and name, while any is in use.
type slots struct {
	used int
	next int
	free []int // the longest unused first
}

// takeSlot finds a free slot. With Driver.mu held.
func (s *session) takeSlot(name string) int {
	of := s.slots[name]
	if of == nil {
		s.turn = (s.turn + 1) % slotTurns
		of = &slots{next: s.turn}
		s.slots[name] = of
	}
	of.used++
	if len(of.free) >= slotTurns {
		slot := of.free[0]
		of.free = of.free[1:]
		return slot
	}
	of.next++
	return of.next - 1
}

// freeSlot gives a slot back whose key is not in the store. With Driver.mu held.
func (s *session) freeSlot(name string, slot int) {
	of := s.slots[name]
	if of.used--; of.used == 0 {
		delete(s.slots, name)
		return
	}
	of.free = append(of.free, slot)
}
