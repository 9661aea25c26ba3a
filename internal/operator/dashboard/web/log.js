// The log of a rollout or a node: Events and outcomes, newest first.

import { h, choice, natural, clock, short, number, withCommands } from "./dom.js";

const most = 100; // entries that are shown

/** Draws the entries, only those of a node if it is chosen. choose is missing in the log of one node. commands can be copied,
 * except from Events: without the policy evenkeel-event, any node can write them. */
export function log(id, answer, node, look, choose, commands) {
  const names = [...new Set(answer.entries.map((e) => e.node).filter(Boolean))].sort((a, b) => (natural(a) < natural(b) ? -1 : 1));
  if (node && !names.includes(node)) names.push(node);
  const entries = answer.entries.filter((e) => !choose || !node || e.node === node);
  const today = new Date().toDateString();
  const time = (t) => (new Date(t).toDateString() === today ? clock(t) : new Date(t).toLocaleDateString("en", { day: "numeric", month: "short" }) + " " + clock(t).slice(0, 5));
  return [
    choose && names.length > 0 && choice("log-node-" + id, "Node", [["", "all"], ...names.map((n) => [n, n])], node, choose),
    answer.note && h("p", { class: "muted small" }, answer.note),
    entries.length === 0 ? h("p", { class: "muted" }, "No entries.") : h("ol", { class: "log", tabindex: "0", "aria-label": "Log, newest first" }, entries.slice(0, most).map((e) => h("li", { "data-kind": e.kind },
      h("time", { datetime: e.time }, time(e.time)),
      h("span", {}, h("strong", {}, e.reason), e.node && choose && [" ", h("button", { type: "button", class: "link-button", onclick: () => look(e.node) }, e.node)],
        h("span", { class: "words" }, withCommands(short(e.message ?? ""), e.source === "Event" ? [] : commands)))))),
    entries.length > most && h("p", { class: "muted small" }, `The newest ${most} of ${number(entries.length)} entries.`),
  ];
}
