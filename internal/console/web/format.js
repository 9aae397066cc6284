// Elements, and values in words.

// el makes an element: el("div", {class: "x", onclick: f}, child, "text").
export function el(tag, attrs = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

// setText touches the page only if the text is another.
export function setText(e, text) {
  if (e.shown !== text) {
    e.shown = text;
    e.textContent = text;
  }
}

// setAttr does the same for an attribute; null removes it.
export function setAttr(e, name, value) {
  const all = (e.attrs ??= {});
  if (all[name] === value) return;
  all[name] = value;
  if (value == null) e.removeAttribute(name);
  else e.setAttribute(name, value);
}

export function setClass(e, name, on) {
  if (e.classList.contains(name) !== on) e.classList.toggle(name, on);
}

// Characters that are not seen, or that change the order of the others, are shown
// as what they are: a lock's name may be any text.
const unseen = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u{115F}\u{1160}\u{3164}]|^ | $/gu;

export function visible(text) {
  return text.replace(unseen, (c) => (c === " " ? "␠" : "\\u{" + c.codePointAt(0).toString(16) + "}"));
}

// duration is short, and as wide for 12s as for 59s: "0s", "12s", "3m 05s", "2h 14m", "3d 04h".
export function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m " + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h " + two(Math.floor(s / 60) % 60) + "m";
  return Math.floor(s / 86400) + "d " + two(Math.floor(s / 3600) % 24) + "h";
}

// precise has tenths below ten seconds: of what is over.
export function precise(ms) {
  if (ms < 1000) return Math.max(0, Math.round(ms)) + " ms";
  return ms < 10000 ? (ms / 1000).toFixed(1) + "s" : duration(ms);
}

const number = new Intl.NumberFormat("en-US");
export const count = (n) => number.format(n);

// plural is "1 lock", "2,000 locks".
export const plural = (n, one, many = one + "s") => count(n) + " " + (n === 1 ? one : many);

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const timeOfDay = (ms) => clock.format(ms);

// perSecond is a rate: "–" for none.
export function perSecond(rate) {
  if (rate === 0) return "–";
  return rate >= 10 ? count(Math.round(rate)) : rate >= 0.05 ? rate.toFixed(1) : "<0.1";
}

const svgNS = "http://www.w3.org/2000/svg";

// sparkline makes a chart of bars, one for each of n buckets. Its set draws values, oldest first;
// where seen is false nobody knows the value.
export function sparkline(n, width, height) {
  const svg = document.createElementNS(svgNS, "svg");
  const path = document.createElementNS(svgNS, "path");
  const unseen = document.createElementNS(svgNS, "path");
  unseen.setAttribute("class", "unseen");
  for (const [k, v] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height, class: "spark", "aria-hidden": "true" })) svg.setAttribute(k, v);
  svg.append(unseen, path);
  const step = width / n;
  let shown = null;
  let gaps = null;
  svg.set = (values, seen) => {
    let u = "";
    for (let i = 0; i < n; i++) if (seen && !seen[i]) u += `M${(i * step).toFixed(1)} 0v${height}h${step.toFixed(1)}v-${height}z`;
    if (u !== gaps) unseen.setAttribute("d", (gaps = u));
    const top = Math.max(2, ...values);
    let d = "";
    for (let i = 0; i < n; i++) {
      if (values[i] === 0) continue;
      const h = Math.max(1.5, (values[i] / top) * (height - 1));
      d += `M${(i * step).toFixed(1)} ${height}v-${h.toFixed(1)}h${Math.max(1, step - 0.5).toFixed(1)}v${h.toFixed(1)}z`;
    }
    if (d !== shown) path.setAttribute("d", (shown = d));
  };
  return svg;
}
