// Package browsertest tries the console in a headless Chromium. It is a module of
// its own, so that nobody who uses locker depends on what drives the browser.
// It holds tests only.
//
//	go test . -screenshots ../../docs
//
// makes the screenshots of the documentation again.
package browsertest
