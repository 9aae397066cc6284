// What the console's server tells, as it is now: stores, and the queues of each.

import { visible } from "./format.js";

export const data = {
  stores: [], // {name, status, queues: Map of name to queue}
  hello: null, // the stream's first message
  linked: false, // the stream is open
  lostAt: 0, // since when it is not
};

let changed = () => {};
let skew = 0; // the server's clock less ours

// onChange has f called after each message.
export const onChange = (f) => (changed = f);

// now is the time by the console's server.
export const now = () => Date.now() + skew;

// listless tells that a store cannot list its locks: there is nothing to wait for.
export const listless = (store) => store.status.state === "unsupported";

// stale tells whether what is known of a store is not of now.
export const stale = (store) => store.status.state !== "up" || !data.linked;

// clock is the time that ages in a store are told by: it stands still while the store is silent.
export const clock = (store) => {
  if (!data.linked) return Math.max(store.status.at ?? 0, data.lostAt);
  return store.status.state === "up" ? now() : (store.status.at ?? now());
};

let source = null;
let hidden = 0; // timer

export function connect() {
  if (source) return;
  source = new EventSource("/api/events");
  const on = (kind, f) => source.addEventListener(kind, (e) => (f(JSON.parse(e.data)), changed()));
  on("hello", greet);
  on("store", update);
  on("keep-alive", () => {});
  on("bye", () => location.assign("/login" + location.hash));
  source.onerror = () => {
    if (data.linked || !data.lostAt) data.lostAt = now();
    data.linked = false;
    if (source.readyState === EventSource.CLOSED) again();
    changed();
  };
}

// again is for a stream that the browser does not open again by itself: the session may have ended.
async function again() {
  source = null;
  const answer = await fetch("/api/queue?store=0&name=-").catch(() => null);
  if (answer?.status === 401) location.assign("/login" + location.hash);
  else setTimeout(connect, 2000);
}

function disconnect() {
  source?.close();
  source = null;
}

// A tab that nobody sees costs the store nothing.
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (document.hidden) hidden = setTimeout(disconnect, 20000);
  else if (!source) connect();
});

function greet(hello) {
  const same = data.hello && String(data.hello.stores) === String(hello.stores);
  data.hello = hello;
  data.linked = true;
  skew = hello.now - Date.now();
  if (!same) data.stores = hello.stores.map((name, id) => ({ id, name: visible(name), status: { state: "connecting" }, queues: new Map() }));
}

function update(m) {
  const store = data.stores[m.store];
  skew = m.now - Date.now();
  store.status = m.status;
  if (m.status.state === "up") { // else what is shown stands still
    store.seen = m.seen;
    store.seenUntil = Math.floor(m.now / data.hello.bucket);
  }
  const kept = m.full ? new Set() : null;
  for (const q of m.set ?? []) {
    put(store, q, m);
    kept?.add(q.name);
  }
  for (const name of m.gone ?? []) remove(store, name);
  if (kept) for (const name of store.queues.keys()) if (!kept.has(name)) remove(store, name);
}

function remove(store, name) {
  const q = store.queues.get(name);
  if (q) q.there = false;
  store.queues.delete(name);
}

function put(store, view, m) {
  let q = store.queues.get(view.name);
  const past = m.rates?.[view.name];
  const known = q && !m.full;
  if (!q) {
    q = { store, key: store.id + "/" + view.name, title: visible(view.name), rates: new Array(data.hello.buckets).fill(0), newest: 0, total: 0 };
    store.queues.set(view.name, q);
  }
  advance(q, m.now);
  if (known) {
    q.rates[q.rates.length - 1] += Math.max(0, view.grants - q.grants);
  } else {
    q.rates = past ? past.slice() : q.rates.fill(0);
  }
  delete q.oldest;
  delete q.free;
  Object.assign(q, view, { there: true });
  derive(q);
}

// derive keeps what the list sorts, filters and shows.
function derive(q) {
  const held = q.tickets.filter((t) => t.held);
  q.first = held[0] ?? null;
  q.heldSince = held.reduce((min, t) => (t.since && (!min || t.since < min) ? t.since : min), 0);
  q.least = held.reduce((min, t) => (t.ends && (!min || t.ends < min.ends) ? t : min), null);
  const words = [q.title, q.store.name];
  for (const t of q.tickets) words.push(t.owner, t.note ?? "");
  q.words = words.join("\n").toLowerCase();
}

// advance moves the sparkline on to the bucket of the time t.
function advance(q, t) {
  const newest = Math.floor(t / data.hello.bucket);
  const steps = q.newest ? Math.min(newest - q.newest, q.rates.length) : 0;
  for (let i = 0; i < steps; i++) {
    q.rates.shift();
    q.rates.push(0);
  }
  q.newest = Math.max(newest, q.newest);
}

// seen tells of each bucket of a sparkline whether the store was polled in it: what is not
// known is not drawn as zero. It is null before the first answer.
export function seen(store) {
  if (!store.seen) return null;
  const passed = Math.min(store.seen.length, Math.floor(clock(store) / data.hello.bucket) - store.seenUntil);
  if (passed <= 0) return store.seen;
  if (store.moved?.from !== store.seen || store.moved.passed !== passed) {
    // A bucket that has begun since the last message is seen if the last one was: the next poll is on its way.
    const now = store.seen.slice(passed).concat(new Array(passed).fill(store.seen[store.seen.length - 1]));
    store.moved = { from: store.seen, passed, now };
  }
  return store.moved.now;
}

const rateOver = 15; // buckets

// rates are the grants of a queue in each bucket, oldest first, until now.
export function rates(q) {
  advance(q, clock(q.store));
  return q.rates;
}

// rate is in grants per second, over what was seen of the last half minute.
export function rate(q) {
  const all = rates(q);
  const known = seen(q.store);
  let sum = 0;
  let buckets = 0;
  for (let i = all.length - rateOver; i < all.length; i++) {
    sum += all[i];
    if (!known || known[i]) buckets++;
  }
  return sum / ((Math.max(1, buckets) * data.hello.bucket) / 1000);
}

// mode says how a queue is held, if not by one alone.
export function mode(q) {
  const t = q.tickets[0];
  if (!t?.shared) return "";
  return t.limit ? `${q.holders} of ${t.limit}` : `${q.holders} shared`;
}

// queue finds the queue of a lock's page.
export const queue = (store, name) => data.stores[store]?.queues.get(name) ?? null;

// call sends a request that the server takes from this page only.
export async function call(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  }).catch(() => null);
  if (!answer) throw new Error("the console does not answer");
  if (answer.ok) return;
  const why = await answer.json().catch(() => ({}));
  throw new Error(why.error ?? "the console answered " + answer.status);
}
