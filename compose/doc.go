// Package compose makes drivers of drivers: a lock that is held on several
// stores, and one that falls back to another store. What the core of locker does
// for a driver (renewal, re-entry, validity, loss, removal) works on them as it
// does on one store, and the conformance suite runs on them.
package compose
