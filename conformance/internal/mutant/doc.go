// Package mutant is a store in memory with a selectable bug, on which the
// conformance suite is tested: a case that finds no bug proves nothing.
//
// Without a bug it keeps every rule. Unlike the memory driver it has clients that
// can be cut off, waiters that send heartbeats, and a server that can be killed and
// paused. It is written so that its bugs are easy to see, not to be fast.
package mutant
