// Package console serves a web page on which people watch the queues of
// several stores and, where that is allowed, break locks.
//
// # Where the page's data comes from
//
// One poller for each store reads the names in use and the queue of each, as
// `locker list` and `locker inspect` do. It polls only while a browser shows the
// page (and a moment longer, so that a reload finds its history), shares the result
// among all browsers, and slows down if the store is slow: it pauses for four times
// as long as the poll took. Browsers get the differences by server-sent events.
//
// Events are the differences between two polls. A lock that was taken and released
// between two polls is missing, so the rate of grants is a lower bound. A waiter
// that is gone while a later ticket holds is counted as granted, because queues are
// first come, first served.
//
// # Who may look
//
// Whoever has the token, or the second one, with which nobody breaks locks. It is typed into a form once, compared in constant time,
// and exchanged for a session, whose name is in a cookie that scripts cannot read
// and other sites cannot send. A cookie is sent to every port of a host: every
// server there sees it, and its pages count as the same site. So a request that
// changes anything must come from a page of this origin
// (http.CrossOriginProtection), as the browser's Sec-Fetch-Site or Origin says. A
// request for a host name that is not the console's is refused, against DNS
// rebinding.
package console
