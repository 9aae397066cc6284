// Package console serves a web page on which people watch the queues of
// several stores and, where that is allowed, break locks.
//
// # Where the page's data comes from
//
// One poller a store asks it for the names in use and for the queue of each, as
// `locker list` and `locker inspect` would. It asks only while somebody looks
// (and a moment longer, so that a reload finds its history), shares what it
// sees among all browsers, and slows down where asking takes long: it is idle
// for four times as long as it was busy. Browsers get the differences by
// server-sent events.
//
// Events are the differences between two polls. What a poll did not see did not
// happen, as far as the console knows: a lock that was taken and released between
// two polls is missing, and so the rate of grants is a lower bound. A waiter
// that is gone while a later ticket holds is counted as granted, because queues
// are first come, first served.
//
// # Who may look
//
// Whoever has the token. It is typed into a form once, compared in constant
// time, and exchanged for a session, whose name is in a cookie that scripts
// cannot read and other sites cannot send. Cookies do not know of ports: every
// server on the same host sees them, and its pages count as the same site. So
// a request that changes anything must come from a page of this origin
// (http.CrossOriginProtection) and bring a second secret of the session that
// only such a page can read. A request for a host name that is not the
// console's is refused, against DNS rebinding.
package console
