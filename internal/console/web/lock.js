// A lock's own page: its queue, and what happened in it.

import { data, clock, stale, rate, rates, seen, mode, queue } from "./data.js";
import { el, setText, setAttr, setClass, visible, duration, precise, count, plural, perSecond, sparkline, timeOfDay } from "./format.js";
import { fillLease } from "./list.js";
import { ask } from "./breaking.js";

const page = document.getElementById("lock");

let at = null; // {store, name} of the page that is open
let parts = null; // its elements
let more = null; // the server's last answer: all tickets, events
let fetched = ""; // for which state of the queue
let asking = false;

export function open(store, name) {
  close();
  at = { store, name };
  build();
  page.hidden = false;
  refresh();
}

export function close() {
  at = parts = more = null;
  fetched = "";
  page.hidden = true;
  page.replaceChildren();
}

const figureNames = { held: "Held for", lease: "Lease left", waiters: "Waiters", wait: "Longest wait", rate: "Grants/s" };

function build() {
  const f = {};
  const figures = el("dl", { class: "figures" });
  for (const [id, label] of Object.entries(figureNames)) {
    f[id] = el("dd");
    figures.append(el("div", { class: "figure " + id }, el("dt", {}, label), f[id]));
  }
  f.rateText = f.rate.appendChild(el("span"));
  f.spark = f.rate.appendChild(sparkline(data.hello.buckets, 180, 30));
  const rows = el("tbody");
  const events = el("ol", { class: "events" });
  parts = { f, rows, events, state: el("span", { class: "state" }), store: el("span", { class: "muted" }), since: el("p", { class: "muted" }), rest: el("p", { class: "muted" }), lines: new Map(), last: 0 };
  const head = ["#", "Owner", "State", "For", "Lease left", "Token", ""].map((t) => el("th", { scope: "col", class: ["For", "Lease left", "Token"].includes(t) ? "num" : null }, t || el("span", { class: "sr" }, "Actions")));
  page.append(
    el("p", { class: "crumb" }, el("a", { href: "#/" }, "← All locks")),
    el("div", { class: "title" }, el("h1", { id: "lock-name" }, visible(at.name)), parts.state, parts.store),
    figures,
    el("h2", {}, "Queue"),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), rows)),
    parts.rest,
    el("h2", {}, "Recent events"),
    events,
    parts.since,
  );
}

// refresh shows what is known, and asks for what every page does not get when
// the queue has changed.
export function refresh() {
  if (!at || !data.hello) return;
  const store = data.stores[at.store];
  if (!store) return setText(parts.state, "There is no such store.");
  const q = queue(at.store, at.name);
  const version = q ? `${q.seq}/${store.status.at}` : "none/" + store.status.state;
  if (version !== fetched && !asking && data.linked) load(version);
  draw(store, q);
}

async function load(version) {
  const asked = at;
  asking = true;
  const url = "/api/queue?" + new URLSearchParams({ store: at.store, name: at.name });
  const answer = await fetch(url).then((a) => (a.ok ? a.json() : null)).catch(() => null);
  asking = false;
  if (!answer || asked !== at) return;
  more = answer;
  fetched = version;
  refresh();
}

function draw(store, q) {
  const t = clock(store);
  const { f } = parts;
  setClass(page, "stale", stale(store));
  setText(parts.store, store.name);
  setText(parts.state, stateOf(q));
  setAttr(parts.state, "class", "state " + (!q || (!q.first && !q.waiters) ? "free" : q.waiters ? "contended" : "held"));
  setText(f.held, q?.heldSince ? duration(t - q.heldSince) : "–");
  setText(f.lease, q?.least ? duration(q.least.ends - t) : "–");
  setText(f.waiters, q ? count(q.waiters) : "–");
  setText(f.wait, q?.oldest ? duration(t - q.oldest) : "–");
  setText(f.rateText, q ? perSecond(rate(q)) : "–");
  if (q) f.spark.set(rates(q), seen(store));
  drawTickets(q ? (more?.queue.tickets.length > q.tickets.length ? more.queue.tickets : q.tickets) : [], t);
  setText(parts.rest, more?.more ? `… and ${plural(more.more, "more waiter")}.` : "");
  drawEvents();
}

function stateOf(q) {
  if (!q || (!q.first && !q.waiters)) return "free";
  const held = q.first ? mode(q) || "held" : "being granted";
  return q.waiters ? `${held}, ${plural(q.waiters, "waiter")}` : held;
}

// drawTickets keeps the rows of tickets that are still there, so that focus and
// selection stay.
function drawTickets(tickets, t) {
  const { rows, lines } = parts;
  const there = new Set();
  let before = rows.firstChild;
  tickets.forEach((ticket, i) => {
    const id = ticket.token + "/" + ticket.owner;
    there.add(id);
    let row = lines.get(id);
    if (!row) lines.set(id, (row = ticketRow()));
    if (row !== before) rows.insertBefore(row, before);
    else before = row.nextSibling;
    fillTicket(row, ticket, i, t);
  });
  for (const [id, row] of lines) {
    if (there.has(id)) continue;
    row.remove();
    lines.delete(id);
  }
  if (!tickets.length && !parts.none) rows.append((parts.none = el("tr", {}, el("td", { colspan: "7", class: "muted" }, "Nobody holds this lock, and nobody waits for it."))));
  if (tickets.length && parts.none) parts.none = parts.none.remove() ?? null;
}

function ticketRow() {
  const c = { n: el("td", { class: "num muted" }), owner: el("td"), state: el("td"), age: el("td", { class: "num" }), left: el("span"), meter: el("i"), token: el("td", { class: "num token" }) };
  const name = c.owner.appendChild(el("div", { class: "owner" }));
  const note = c.owner.appendChild(el("div", { class: "sub" }));
  const lease = el("td", { class: "num lease" }, c.left, el("div", { class: "meter", "aria-hidden": "true" }, c.meter));
  const row = el("tr", {}, c.n, c.owner, c.state, c.age, lease, c.token);
  const action = el("td", { class: "action" });
  if (data.hello.allowBreak) {
    const where = at;
    row.button = action.appendChild(el("button", { type: "button", class: "quiet danger", onclick: () => ask(where, row.ticket) }));
  }
  row.append(action);
  row.parts = { ...c, name, note };
  return row;
}

function fillTicket(row, ticket, i, t) {
  const c = row.parts;
  row.ticket = ticket;
  setText(c.n, String(i + 1));
  setText(c.name, visible(ticket.owner) || "(no owner)");
  setText(c.note, visible(ticket.note ?? ""));
  setText(c.state, (ticket.held ? "holds" : "waits") + (ticket.limit ? `, limit ${ticket.limit}` : ticket.shared ? ", shared" : ""));
  setClass(row, "holder", ticket.held === true);
  setText(c.age, ticket.since ? duration(t - ticket.since) : "–");
  fillLease(c.left, c.meter, ticket, t);
  setText(c.token, ticket.token === "0" ? "none" : ticket.token);
  if (!row.button) return;
  setText(row.button, ticket.held ? "Break…" : "Remove…");
  setAttr(row.button, "aria-label", (ticket.held ? "Break the lock of " : "Remove from the queue: ") + visible(ticket.owner));
}

const said = {
  queued: (e) => ["queued", ""],
  granted: (e) => ["granted", e.for ? "after " + precise(e.for) : ""],
  passed: (e) => ["granted and released, or gave up", "between two looks"],
  left: (e) => ["gave up", e.for ? "after " + precise(e.for) : ""],
  released: (e) => ["released", e.for ? "after " + precise(e.for) : ""],
  expired: (e) => ["lease ended", e.for ? "after " + precise(e.for) : ""],
  broken: (e) => ["broken here", e.for ? "after " + precise(e.for) : ""],
};

function drawEvents() {
  if (!more) return;
  const events = more.events;
  const newest = events.length ? events[events.length - 1].seq : 0;
  if (parts.last !== newest || !parts.said) {
    for (const e of events) if (e.seq > parts.last) parts.events.prepend(eventLine(e));
    while (parts.events.children.length > 60) parts.events.lastChild.remove();
    parts.last = newest;
    parts.said = true;
  }
  const from = more.watching ? `Watched since ${timeOfDay(more.watching)}. ` : "Not seen yet. ";
  setText(parts.since, from + "Events are what differs between two looks at the store; what came and went in between is not here.");
}

function eventLine(e) {
  const [what, detail] = (said[e.kind] ?? ((x) => [x.kind, ""]))(e);
  const every = data.hello.every;
  const about = e.within > 3 * every ? `± ${duration(e.within)}` : "";
  return el(
    "li",
    { class: e.kind },
    el("time", { datetime: new Date(e.at).toISOString() }, timeOfDay(e.at)),
    el("span", { class: "what" }, what),
    el("span", { class: "owner" }, visible(e.owner)),
    el("span", { class: "muted detail" }, detail),
    el("span", { class: "muted about", title: about ? "the store had not been asked for so long" : null }, about),
  );
}

export const current = () => at;
