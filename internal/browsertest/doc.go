// Package browsertest tries the console in a headless Chromium. It is a module of
// its own, so that nobody who uses locker depends on what drives the browser.
// It holds tests only.
//
//	go test . -run Screenshots -screenshots ../../docs
//
// makes the screenshots of the documentation again, in under three minutes, with
// Debian's fonts-inter and fonts-jetbrains-mono installed.
package browsertest
