package command

// GuardVerb is the argument with which a test of this package is the guard of a command.
const GuardVerb = guardVerb
