// The stores: which answer, since when not, and how long it takes. The word in the header opens this dialog.

import { data, now } from "./data.js";
import { el, setText, visible, duration, timeOfDay } from "./format.js";

const dialog = document.getElementById("health");

let lines = []; // for each store, the elements of its facts by their labels

const labels = ["Answers", "Last answer", "Version"];

export function open() {
  lines = [];
  const parts = data.stores.flatMap((store) => {
    const facts = Object.fromEntries(labels.map((label) => [label, el("dd")]));
    lines.push(facts);
    return [el("h3", {}, store.name), el("dl", { class: "facts" }, ...labels.map((label) => el("div", {}, el("dt", {}, label), facts[label])))];
  });
  dialog.replaceChildren(
    el("h2", { id: "health-title" }, "Stores"),
    ...parts,
    el("form", { method: "dialog" }, el("button", { class: "primary" }, "Close")),
  );
  dialog.showModal();
  refresh();
}

export function refresh() {
  if (!dialog.open || lines.length !== data.stores.length) return;
  data.stores.forEach(({ status }, i) => {
    setText(lines[i]["Answers"], answers(status));
    setText(lines[i]["Last answer"], status.at ? timeOfDay(status.at) + (status.state === "up" ? `, took ${status.took} ms, asked again after ${duration(status.rest)}` : "") : "none");
    setText(lines[i]["Version"], visible(status.version ?? "") || "not known");
  });
}

function answers({ state, since, error }) {
  if (!data.linked) return "not known: the console does not answer";
  if (state === "down") return `not since ${timeOfDay(since)}, ${duration(now() - since)}: ${visible(error ?? "")}`;
  return { up: "yes", connecting: "being asked", unsupported: "not known: it cannot list its locks, and locker ping asks it" }[state];
}
