// Breaking a lock, two steps away: the button on the lock's page opens this dialog.

import { call, clock, data, queue } from "./data.js";
import { el, visible, duration, plural } from "./format.js";

const dialog = document.getElementById("break");

let asked = null; // {where, ticket}
let confirm = null; // the button
let message = null;

export function ask(where, ticket) {
  asked = { where, ticket };
  const store = data.stores[where.store];
  const q = queue(where.store, where.name);
  const facts = [
    ["Lock", visible(where.name)],
    ["Store", store.name],
    ["Owner", visible(ticket.owner)],
    ticket.note && ["Note", visible(ticket.note)],
    ["Token", ticket.token],
    ticket.since && [ticket.held ? "Held for" : "Waits for", duration(clock(store) - ticket.since)],
    ticket.held && ["Then", next(q)],
  ].filter(Boolean);
  message = el("p", { class: "refusal", role: "alert", hidden: true });
  confirm = el("button", { type: "button", class: "danger-solid", onclick: send }, ticket.held ? "Break the lock" : "Remove the waiter");
  dialog.replaceChildren(
    el("h2", { id: "break-title" }, ticket.held ? "Take this lock away?" : "Remove this waiter?"),
    el("dl", { class: "facts" }, ...facts.map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v)))),
    el("p", {}, ticket.held ? holderWarning : waiterWarning),
    message,
    el("div", { class: "buttons" }, el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Cancel"), confirm),
  );
  dialog.showModal();
}

const holderWarning =
  "The lock is free at once. Its holder learns of that when the store tells it, or at its next renewal. Until then it may go on working, and only the fencing token keeps it from the next holder’s work.";
const waiterWarning = "It loses its place. If its program still wants the lock, it queues again at the end.";

function next(q) {
  const waiter = q?.tickets.find((t) => !t.held);
  if (!waiter) return "nobody waits for it";
  return visible(waiter.owner) + (q.waiters > 1 ? `, the first of ${plural(q.waiters, "waiter")}` : " gets it");
}

async function send() {
  const { where, ticket } = asked;
  confirm.disabled = true;
  try {
    await call("/api/break", { store: where.store, name: where.name, token: ticket.token, owner: ticket.owner });
    dialog.close();
  } catch (err) {
    message.textContent = err.message;
    message.hidden = false;
    confirm.disabled = false;
  }
}

// refresh says so if the ticket went by itself meanwhile.
export function refresh() {
  if (!dialog.open || !asked || confirm.disabled) return;
  const { where, ticket } = asked;
  const q = queue(where.store, where.name);
  const there = q?.tickets.some((t) => t.token === ticket.token && t.owner === ticket.owner);
  if (there || (q && q.holders + q.waiters > q.tickets.length)) return;
  message.textContent = "It is gone meanwhile: there is nothing left to do.";
  message.hidden = false;
  confirm.disabled = true;
}
