"use strict";
document.getElementById("refusal").hidden = location.search !== "?refused";
// The fragment names the lock that somebody wanted to see; the redirect keeps it.
document.getElementById("login").action = "/login" + location.hash;
