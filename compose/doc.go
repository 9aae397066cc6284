// Package compose makes drivers of drivers:
//
//   - [All] holds a name on every one of several stores;
//   - [Fallback] uses a second store while the first is unavailable;
//   - [TokenBase] adds a constant to the fencing tokens of a driver.
//
// The core of locker treats them like any driver (renewal, re-entry, validity, loss,
// removal), and the conformance suite runs on them.
//
// # URLs
//
// A program that imports this package, or driver/all, can compose stores by URL. The
// inner URLs are in parentheses:
//
//	all://(redis://h1:6379/0)(postgres://app:secret@db/app)?authority=1&ttl=10s
//	fallback://(redis://h1:6379)(redis://h2:6379)?patience=1s
//	tokenbase://(postgres://app:secret@db/app)?n=4503599627370496
//	all://(redis://h1:6379)(tokenbase://(postgres://db/app)?n=4503599627370496)
//
// Write an unbalanced parenthesis in an inner URL as %28 or %29. The outer prefix
// applies to every inner URL without one. Only the outer URL has ttl.
package compose
