package kvqueue

// Engine has the books.
type Engine struct{}
