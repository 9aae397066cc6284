package conformance

var loss, options, failures, closing, inspection, histories, leaks, outages []Case
