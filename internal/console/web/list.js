// The list of locks: only the rows in sight are in the page, however many there are.

import { data, clock, stale, rate, rates, seen, mode } from "./data.js";
import { el, setText, setAttr, setClass, visible, duration, count, plural, perSecond, sparkline } from "./format.js";

const $ = (id) => document.getElementById(id);
const rowHeight = 46; // as in the style sheet
const spare = 6; // rows beyond what is seen

const byName = (a, b) => (a.title < b.title ? -1 : a.title > b.title ? 1 : a.store.id - b.store.id);
const late = Number.MAX_SAFE_INTEGER;

// Columns. order sorts the way that is asked for first; ties go by name.
const columns = [
  { id: "name", label: "Lock", order: byName },
  { id: "holder", label: "Holder", order: (a, b) => !a.first - !b.first || cmp(a.first?.owner, b.first?.owner) },
  { id: "held", label: "Held for", num: true, order: (a, b) => (a.heldSince || late) - (b.heldSince || late) },
  { id: "lease", label: "Lease left", num: true, order: (a, b) => (a.least?.ends ?? late) - (b.least?.ends ?? late) },
  { id: "waiters", label: "Waiters", num: true, order: (a, b) => b.waiters - a.waiters },
  { id: "wait", label: "Longest wait", num: true, order: (a, b) => (a.oldest ?? late) - (b.oldest ?? late) || b.waiters - a.waiters },
  { id: "rate", label: "Grants/s", num: true, order: (a, b) => rate(b) - rate(a) },
];

function cmp(a = "", b = "") {
  return a < b ? -1 : a > b ? 1 : 0;
}

const state = {
  store: null, // index, or null for all
  words: [],
  contended: false,
  column: columns.find((c) => c.id === "wait"),
  reverse: false,
  shown: [], // queues, in order
  total: 0,
  chosen: "", // key of the queue under the keyboard's cursor
  busyUntil: 0, // the pointer moves over the rows: they stay in order
};

const rows = []; // pool of row elements

// start makes the fixed parts. open is called with the queue that somebody chose.
export function start(open) {
  for (const c of columns) {
    const button = el("button", { type: "button", onclick: () => sortBy(c) }, c.label);
    c.head = el("div", { role: "columnheader", class: "cell " + c.id + (c.num ? " num" : "") }, button);
    $("head").append(c.head);
  }
  $("filter").addEventListener("input", () => search($("filter").value));
  $("contended").addEventListener("click", toggleContended);
  const grid = $("grid");
  grid.addEventListener("scroll", draw, { passive: true });
  grid.addEventListener("keydown", (e) => moveKey(e, open));
  grid.addEventListener("pointermove", () => (state.busyUntil = Date.now() + 2000), { passive: true });
  $("rows").addEventListener("click", (e) => {
    const row = e.target.closest("[role=row]");
    if (!row || e.target.closest("a") || String(getSelection())) return;
    open(row.queue);
  });
  new ResizeObserver(draw).observe(grid);
  showOrder();
}

export function search(text) {
  state.words = text.toLowerCase().split(/\s+/).filter(Boolean);
  afresh();
}

export function toggleContended() {
  state.contended = !state.contended;
  setAttr($("contended"), "aria-pressed", String(state.contended));
  afresh();
}

export function chooseStore(store) {
  if (state.store === store) return;
  state.store = store;
  afresh();
}

function sortBy(column) {
  state.reverse = state.column === column && !state.reverse;
  state.column = column;
  showOrder();
  afresh();
}

function showOrder() {
  for (const c of columns) {
    setAttr(c.head, "aria-sort", c !== state.column ? null : state.reverse ? "descending" : "ascending");
  }
}

function afresh() {
  state.busyUntil = 0;
  refresh();
  $("grid").scrollTop = 0;
}

const matches = (q) => (!state.contended || q.waiters > 0) && state.words.every((w) => q.words.includes(w));

// refresh finds out what is shown, in which order, and draws it.
export function refresh() {
  const all = [];
  for (const s of data.stores) if (state.store === null || state.store === s.id) for (const q of s.queues.values()) all.push(q);
  let found = all.filter(matches);
  const { order } = state.column;
  const sorted = (a, b) => (state.reverse ? -1 : 1) * order(a, b) || byName(a, b);
  if (Date.now() < state.busyUntil) {
    const kept = state.shown.filter((q) => q.there && matches(q));
    const old = new Set(kept);
    found = kept.concat(found.filter((q) => !old.has(q)).sort(sorted));
  } else {
    found.sort(sorted);
  }
  state.shown = found;
  state.total = all.length;
  summarize(all);
  draw();
}

// draw puts the rows in sight into the page.
export function draw() {
  const grid = $("grid");
  if (!grid.offsetParent) return; // another view is shown
  const n = state.shown.length;
  $("rows").style.height = n * rowHeight + "px";
  setAttr(grid, "aria-rowcount", String(n + 1));
  const first = Math.max(0, Math.floor(grid.scrollTop / rowHeight) - spare);
  const last = Math.min(n, Math.ceil((grid.scrollTop + grid.clientHeight) / rowHeight) + spare);
  for (let i = rows.length; i < last - first; i++) rows.push(makeRow());
  const several = data.stores.length > 1 && state.store === null;
  for (let i = 0; i < rows.length; i++) {
    // A row stays in its slot while the list scrolls.
    const at = first + ((((i - first) % rows.length) + rows.length) % rows.length);
    if (at < last) fill(rows[i], state.shown[at], at, several);
    else setAttr(rows[i], "hidden", "");
  }
  const chosen = state.shown.findIndex((q) => q.key === state.chosen);
  setAttr(grid, "aria-activedescendant", chosen >= first && chosen < last ? "row-" + chosen : null);
  setText($("count"), n === state.total ? plural(n, "lock") : `${count(n)} of ${plural(state.total, "lock")}`);
  setAttr($("empty"), "hidden", n ? "" : null);
  if (!n) setText($("empty"), nothing());
}

function nothing() {
  if (state.total) return "No lock matches.";
  if (data.stores.some((s) => s.status.state === "connecting")) return "Asking the stores…";
  if (data.stores.every(stale)) return "Nothing is known yet.";
  return "Nobody holds a lock, and nobody waits for one.";
}

function makeRow() {
  const row = el("div", { role: "row", class: "row", hidden: true });
  row.attrs = { hidden: "" };
  const c = (row.cells = {});
  for (const col of columns) {
    c[col.id] = el("div", { role: "gridcell", class: "cell " + col.id + (col.num ? " num" : "") });
    row.append(c[col.id]);
  }
  row.link = el("a", { class: "lockname", tabindex: "-1" });
  row.sub = el("div", { class: "sub" });
  c.name.append(row.link, row.sub);
  row.owner = el("span", { class: "owner" });
  row.badge = el("span", { class: "badge" });
  row.note = el("div", { class: "sub" });
  c.holder.append(el("div", { class: "line" }, row.owner, row.badge), row.note);
  row.left = el("span");
  row.meter = el("i");
  c.lease.append(row.left, el("div", { class: "meter", "aria-hidden": "true" }, row.meter));
  row.spark = sparkline(data.hello.buckets, 90, 20);
  row.rate = el("span");
  c.rate.append(row.spark, row.rate);
  $("rows").append(row);
  return row;
}

function fill(row, q, at, several) {
  const c = row.cells;
  const t = clock(q.store);
  row.queue = q;
  setAttr(row, "hidden", null);
  setAttr(row, "id", "row-" + at);
  setAttr(row, "aria-rowindex", String(at + 2));
  setAttr(row, "aria-selected", String(q.key === state.chosen));
  if (row.at !== at) row.style.transform = `translateY(${(row.at = at) * rowHeight}px)`;
  setClass(row, "stale", stale(q.store));
  setClass(row, "free", !q.first && !q.waiters);
  setText(row.link, q.title);
  setAttr(row.link, "href", address(q));
  setAttr(row.link, "title", q.title.length > 30 ? q.title : null);
  setText(row.sub, several ? q.store.name : "");
  fillHolder(row, q);
  setText(c.held, q.heldSince ? duration(t - q.heldSince) : "");
  fillLease(row.left, row.meter, q.least, t);
  setText(c.waiters, q.waiters ? count(q.waiters) : "");
  setText(c.wait, q.oldest ? duration(t - q.oldest) : "");
  setClass(c.wait, "long", q.oldest > 0 && t - q.oldest > 60000);
  row.spark.set(rates(q), seen(q.store));
  setText(row.rate, perSecond(rate(q)));
}

function fillHolder(row, q) {
  setText(row.owner, q.first ? visible(q.first.owner) || "(no owner)" : q.waiters ? "(being granted)" : "free");
  setAttr(row.owner, "title", q.first && q.first.owner.length > 24 ? visible(q.first.owner) : null);
  setText(row.badge, mode(q));
  setText(row.note, q.first?.note ? visible(q.first.note) : "");
}

// fillLease shows what is left of a lease, against the longest that was seen.
export function fillLease(text, meter, ticket, t) {
  const left = ticket?.ends ? Math.max(0, ticket.ends - t) : null;
  setText(text, left === null ? "" : duration(left));
  const part = left === null || !ticket.lease ? 0 : Math.min(1, left / ticket.lease);
  const width = Math.round(part * 100) + "%";
  if (meter.style.width !== width) meter.style.width = width;
  setClass(meter, "short", part > 0 && part < 0.2);
  setAttr(meter.parentElement, "hidden", left === null ? "" : null);
}

export const address = (q) => `#/${q.store.id}/${encodeURIComponent(q.name)}`;

// --- Keyboard ---------------------------------------------------------------

function moveKey(e, open) {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("button")) return;
  const page = Math.max(1, Math.floor($("grid").clientHeight / rowHeight) - 2);
  const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (e.key === "Enter") {
    const q = state.shown.find((q) => q.key === state.chosen);
    if (q) open(q);
  } else if (e.key in steps) {
    move(steps[e.key]);
  } else {
    return;
  }
  e.preventDefault();
}

export function move(step) {
  const n = state.shown.length;
  if (!n) return;
  const grid = $("grid");
  const at = state.shown.findIndex((q) => q.key === state.chosen);
  const to = Math.min(n - 1, Math.max(0, (at < 0 && step < 0 ? n : at) + step));
  state.chosen = state.shown[to].key;
  state.busyUntil = Date.now() + 2000;
  const top = to * rowHeight;
  const height = grid.clientHeight - $("head").offsetHeight;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + rowHeight > grid.scrollTop + height) grid.scrollTop = top + rowHeight - height;
  grid.focus({ preventScroll: true });
  draw();
}

// --- Figures above the list -------------------------------------------------

const figures = {};

function figure(id, label) {
  figures[id] ??= (() => {
    const value = el("dd");
    $("figures").append(el("div", { class: "figure " + id }, el("dt", {}, label), value));
    return value;
  })();
  return figures[id];
}

function summarize(all) {
  let held = 0, waiters = 0, per = 0, oldest = null;
  const sums = new Array(data.hello.buckets).fill(0);
  for (const q of all) {
    held += q.first ? 1 : 0;
    waiters += q.waiters;
    per += rate(q);
    q.rates.forEach((v, i) => (sums[i] += v));
    if (q.oldest && (!oldest || q.oldest < oldest.oldest)) oldest = q;
  }
  setText(figure("held", "Held"), count(held));
  setText(figure("waiting", "Waiting"), count(waiters));
  const wait = figure("wait", "Longest wait");
  setText(wait, oldest ? duration(clock(oldest.store) - oldest.oldest) : "–");
  setAttr(wait.parentElement, "title", oldest ? oldest.title : null);
  const grants = figure("rate", "Grants/s");
  grants.text ??= grants.appendChild(el("span"));
  grants.spark ??= grants.appendChild(sparkline(data.hello.buckets, 180, 30));
  setText(grants.text, perSecond(per));
  const known = data.stores.filter((s) => state.store === null || state.store === s.id).map(seen).filter(Boolean);
  grants.spark.set(sums, sums.map((_, i) => !known.length || known.some((k) => k[i])));
  document.title = (waiters ? plural(waiters, "waiter") + " · " : "") + "locker console";
}
