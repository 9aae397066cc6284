"use strict";
const refusal = document.getElementById("refusal");
const wait = location.search.match(/^\?wait=(\d+)$/);
refusal.hidden = location.search !== "?refused" && !wait;
if (wait) refusal.textContent = `Too many wrong tokens. Try again in ${wait[1]} s.`;
// The fragment names the lock that somebody wanted to see; the redirect keeps it.
document.getElementById("login").action = "/login" + location.hash;
