package handoff

// Len returns how many entries a book has.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.next) + len(b.own)
}
