// Package compose makes drivers of drivers:
//
//   - [All] holds a name on every one of several stores;
//   - [Fallback] uses a second store while the first is unavailable;
//   - [TokenBase] adds a constant to the fencing tokens of a driver.
//
// What the core of locker does for a driver (renewal, re-entry, validity, loss,
// removal) works on them as it does on one store, and the conformance suite runs on
// them.
//
// # URLs
//
// A program that imports this package, or driver/all, can name them in a URL, so
// that configuration alone composes stores. The inner URLs stand in parentheses,
// as they are:
//
//	all://(redis://h1:6379/0)(postgres://app:secret@db/app)?authority=1&ttl=10s
//	fallback://(redis://h1:6379)(redis://h2:6379)?patience=1s
//	tokenbase://(postgres://app:secret@db/app)?n=4503599627370496
//	all://(redis://h1:6379)(tokenbase://(postgres://db/app)?n=4503599627370496)
//
// A parenthesis of an inner URL that has no partner is written as %28 or %29.
// prefix outside applies to every inner URL that names none of its own; ttl stands
// outside only.
package compose
