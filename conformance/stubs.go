package conformance

var histories []Case
