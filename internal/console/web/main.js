// The frame: header, banners, which view is shown, and the keys.

import { data, connect, onChange, stale, listless, now, call } from "./data.js";
import { el, setText, setAttr, setClass, visible, duration, count, timeOfDay } from "./format.js";
import * as list from "./list.js";
import * as lock from "./lock.js";
import * as breaking from "./breaking.js";
import * as health from "./health.js";

const $ = (id) => document.getElementById(id);

// --- Views ------------------------------------------------------------------

// The fragment is "#/", "#/STORE" or "#/STORE/NAME".
function route() {
  if (!data.hello) return;
  const [, store, name] = location.hash.match(/^#\/(\d+)(?:\/(.+))?$/) ?? [];
  const known = store !== undefined && Number(store) < data.stores.length ? Number(store) : null;
  if (known !== null && name) {
    $("list").hidden = true;
    lock.open(known, decode(name));
    $("main").focus({ preventScroll: true });
    scrollTo(0, 0);
  } else {
    const back = lock.current() !== null;
    lock.close();
    $("list").hidden = false;
    list.chooseStore(known);
    list.refresh();
    if (back) $("grid").focus({ preventScroll: true });
  }
  setClass(document.body, "one", !$("lock").hidden);
  refresh();
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// --- Header -----------------------------------------------------------------

const tabs = [];

function drawStores() {
  const nav = $("stores");
  if (tabs.length !== data.stores.length + 1) {
    nav.replaceChildren();
    tabs.length = 0;
    for (let i = -1; i < data.stores.length; i++) {
      const tab = el("a", { class: "tab", href: i < 0 ? "#/" : "#/" + i }, el("i", { class: "dot", "aria-hidden": "true" }), el("span"), el("b"));
      nav.append(tab);
      tabs.push(tab);
    }
    tabs[0].firstChild.remove();
  }
  const chosen = location.hash.match(/^#\/(\d+)/)?.[1];
  let sum = 0;
  data.stores.forEach((s, i) => {
    const tab = tabs[i + 1];
    const state = stale(s) ? s.status.state : "up";
    sum += s.queues.size;
    setText(tab.children[1], s.name);
    setText(tab.children[2], count(s.queues.size));
    setAttr(tab, "class", "tab " + state);
    setAttr(tab, "title", s.name + { up: "", down: ": not reachable", connecting: ": connecting", unsupported: ": cannot list its locks" }[state]);
    setAttr(tab, "aria-current", chosen === String(i) ? "page" : null);
  });
  setText(tabs[0].children[0], "All stores");
  setText(tabs[0].children[1], count(sum));
  setAttr(tabs[0], "aria-current", chosen === undefined ? "page" : null);
  setAttr(tabs[0], "hidden", data.stores.length > 1 ? null : "");
}

function drawLive() {
  const up = data.stores.filter((s) => !stale(s));
  const want = data.stores.filter((s) => !listless(s)).length;
  const live = $("live");
  setClass(live, "off", !data.linked || up.length < want);
  setText(live, !data.linked ? "disconnected" : up.length === want ? "live" : `${up.length} of ${want} stores live`);
  const slow = Math.max(0, ...up.map((s) => s.status.rest));
  setAttr(live, "title", up.map((s) => `${s.name}: answered in ${s.status.took} ms, asked again after ${duration(s.status.rest)}`).join("\n") || null);
  if (data.linked && slow > 3 * data.hello.every) setText(live, "live, every " + duration(slow));
}

// --- Banners ----------------------------------------------------------------

const banners = new Map();

// banner shows text under an id until it is called without text. What ticks is
// apart, so that it is not read out each second.
function banner(id, text, detail, ticking, note) {
  let b = banners.get(id);
  if (!text) {
    b?.remove();
    banners.delete(id);
    return;
  }
  if (!b) {
    b = el("div", { class: "banner", "data-banner": id }, el("strong"), el("span", { "aria-hidden": "true" }), el("p"));
    banners.set(id, b);
    $("banners").append(b);
  }
  setClass(b, "note", note === true);
  setText(b.children[0], text);
  setText(b.children[1], ticking);
  setText(b.children[2], detail);
}

function drawBanners() {
  const silent = !data.linked && data.lostAt > 0;
  banner("console", silent && "The console does not answer.", "The page shows what was known, and connects again by itself.", silent ? "Since " + duration(now() - data.lostAt) : "");
  for (const s of data.stores) {
    const { state, error, since, at } = s.status;
    const shown = at ? `Its locks are shown as they were at ${timeOfDay(at)}. ` : "Nothing is known of its locks. ";
    const text = state === "down" ? `${s.name} does not answer.` : state === "unsupported" ? `${s.name} cannot list its locks.` : "";
    const why = state === "down" ? shown + "The console goes on asking. " + visible(error ?? "") : "That is so with every store of its kind. locker inspect and locker break work there.";
    banner("store-" + s.id, data.linked && text, why, state === "down" ? `Since ${timeOfDay(since)}, ${duration(now() - since)}` : "", listless(s));
  }
}

// --- Theme, help, log out ---------------------------------------------------

const themes = ["system", "light", "dark"];

function drawTheme() {
  const theme = document.documentElement.dataset.theme ?? "system";
  setText($("theme"), { system: "Auto", light: "Light", dark: "Dark" }[theme]);
  setAttr($("theme"), "aria-label", `Theme: ${theme}`);
}

function nextTheme() {
  const root = document.documentElement;
  const theme = themes[(themes.indexOf(root.dataset.theme ?? "system") + 1) % themes.length];
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  localStorage.setItem("locker-theme", theme);
  drawTheme();
}

async function logout() {
  await call("/logout").catch(() => {});
  location.assign("/login");
}

// --- Keys -------------------------------------------------------------------

const keys = {
  "/": () => (go("#/" + (location.hash.match(/^#\/(\d+)/)?.[1] ?? "")), $("filter").focus(), $("filter").select()),
  "?": () => $("about").showModal(),
  s: health.open,
  t: nextTheme,
  c: () => lock.current() === null && list.toggleContended(),
  j: () => lock.current() === null && list.move(1),
  k: () => lock.current() === null && list.move(-1),
  ArrowDown: () => lock.current() === null && list.move(1),
  ArrowUp: () => lock.current() === null && list.move(-1),
  Escape: () => lock.current() && go("#/"),
};

function go(hash) {
  if (location.hash === hash) return;
  location.hash = hash;
  route();
}

function onKey(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector("dialog[open]") || !data.hello) return;
  if (e.target === $("filter")) {
    if (e.key === "Escape") ($("filter").value = ""), list.search(""), $("grid").focus();
    else if (e.key === "Enter" || e.key === "ArrowDown") list.move(1), e.preventDefault();
    return;
  }
  const arrows = e.key.startsWith("Arrow") && lock.current() !== null;
  if (/^[0-9]$/.test(e.key) && Number(e.key) <= data.stores.length) go(e.key === "0" ? "#/" : "#/" + (e.key - 1));
  else if (keys[e.key] && !arrows) keys[e.key](), e.preventDefault();
}

// --- Drawing ----------------------------------------------------------------

let due = false;

function refresh() {
  if (due) return;
  due = true;
  requestAnimationFrame(draw);
}

function draw() {
  due = false;
  if (data.hello) {
    drawStores();
    drawLive();
    if (lock.current()) lock.refresh();
    else list.refresh();
    breaking.refresh();
    health.refresh();
  }
  drawBanners();
}

let started = false;

onChange(() => {
  if (data.hello && !started) {
    started = true;
    list.start((q) => (location.hash = list.address(q)));
    setClass(document.body, "ready", true);
    route();
  }
  refresh();
});
setInterval(refresh, 1000);
addEventListener("hashchange", route);
addEventListener("keydown", onKey);
$("theme").addEventListener("click", nextTheme);
$("live").addEventListener("click", health.open);
$("help").addEventListener("click", () => $("about").showModal());
$("logout").addEventListener("click", logout);
document.querySelector(".skip").addEventListener("click", (e) => (e.preventDefault(), $("main").focus()));
drawTheme();
connect();
