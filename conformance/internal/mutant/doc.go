// Package mutant is a store in memory with a bug of choice, on which the
// conformance suite is tested: a case that finds no bug proves nothing.
//
// Without a bug it keeps every rule. Unlike the memory driver it has what a
// networked store has: clients that can be cut off, waiters that have to show
// that they live, and a server that can be killed and stopped. It is written
// for its bugs to be seen, not to be fast.
package mutant
