// The nodes as a table: filters, order, and the numbers of nodes that lead to filters.

import { h, $, redraw, choice, count, natural, short } from "./dom.js";
import { words, picture, healthName, positionName, healthMeaning, positionMeaning, place } from "./cells.js";

const columns = [
  ["name", "Node"], ["health", "Health"], ["position", "Position"], ["zone", "Zone"], ["rollout", "Rollout"], ["kubelet", "Kubelet"], ["reason", "Reason"],
];
const page = 50;

/** The first word of a reason, such as CrashLooped. */
export const reasonOf = (n) => /^([A-Z][A-Za-z]+)(?=: |$)/.exec(n.reason)?.[1] ?? (n.reason ? "Other" : "");

/** Returns whether nodes are shown with these choices. */
export function filterOf(chosen) {
  const set = (text) => (text ? text.split(",") : []);
  const healths = set(chosen.health), positions = set(chosen.position);
  const part = (chosen.name ?? "").toLowerCase();
  const equal = ["zone", "rollout", "kubelet"].filter((key) => chosen[key]);
  const none = (value) => value || "none";
  return (n) => (!healths.length || healths.includes(words.health[n.health])) && (!positions.length || positions.includes(none(words.position[n.position])))
    && (!part || n.name.toLowerCase().includes(part)) && equal.every((key) => none(n[key]) === chosen[key])
    && (!chosen.reason || reasonOf(n) === chosen.reason);
}

/** Compares nodes for the order of the table: by a column, or the most urgent first. */
export function orderOf(sort = "") {
  const key = sort.replace(/^-/, ""), sign = sort.startsWith("-") ? -1 : 1;
  const urgent = (a, b) => (a.health || 9) - (b.health || 9) || (a.position || 9) - (b.position || 9) || a.rank - b.rank;
  const texts = (of) => (a, b) => sign * (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) || a.rank - b.rank;
  switch (key) {
    case "name": return (a, b) => sign * (a.rank - b.rank);
    case "health": return (a, b) => sign * ((a.health || 9) - (b.health || 9)) || a.rank - b.rank;
    case "position": return (a, b) => sign * ((a.position || 9) - (b.position || 9) || a.state - b.state) || a.rank - b.rank;
    case "zone": case "rollout": case "kubelet": return texts((n) => keyOf(n[key]));
    case "reason": return texts((n) => keyOf(n.reason));
  }
  return urgent;
}

const naturals = new Map();
function keyOf(text) {
  if (naturals.size > 20000) naturals.clear(); // reasons differ without end
  if (!naturals.has(text)) naturals.set(text, natural(text || "\uffff"));
  return naturals.get(text);
}

/**
 * Returns what the reasons of these nodes do not have in common, by node. Reasons with the same first word are compared. What
 * they all begin with is left out: a column of equal beginnings hides the part that differs.
 */
export function differences(list) {
  const groups = new Map();
  for (const n of list) {
    const word = reasonOf(n), text = short(n.reason);
    const rest = word && word !== "Other" && text.startsWith(word + ": ") ? text.slice(word.length + 2) : word === text ? "" : text;
    if (!groups.has(word)) groups.set(word, []);
    groups.get(word).push([n.name, rest]);
  }
  const out = new Map();
  for (const group of groups.values()) {
    const texts = [...new Set(group.map(([, text]) => text))];
    let common = texts.length > 1 ? texts.reduce((a, b) => { let i = 0; while (i < a.length && a[i] === b[i]) i++; return a.slice(0, i); }) : "";
    common = common.slice(0, Math.max(0, ...[" ", ":", ","].map((end) => common.lastIndexOf(end) + 1)));
    if (common.length < 12) common = "";
    for (const [name, text] of group) out.set(name, (common ? "… " : "") + text.slice(common.length).trimStart());
  }
  return out;
}

export class NodeTable {
  /** @param choose changes choices of the address @param look opens a node */
  constructor(choose, look) {
    this.choose = choose;
    this.look = look;
    this.rows = page;
    this.chosen = {};
    this.nodes = new Map();
    redraw($("nodes").tHead.rows[0], columns.map(([key, title]) => h("th", { scope: "col", class: "c-" + key, id: "column-" + key },
      h("button", { id: "sort-" + key, type: "button", class: "sort", onclick: () => this.sortBy(key) }, title, h("span", { class: "arrow", "aria-hidden": "true" })))));
    $("more").addEventListener("click", () => { this.rows += 200; this.draw(); });
    $("search").addEventListener("input", () => this.choose({ name: $("search").value.trim() }, true));
    $("clear").addEventListener("click", () => this.choose(Object.fromEntries(["health", "position", "zone", "rollout", "reason", "kubelet", "name"].map((key) => [key, ""]))));
  }

  sortBy(key) {
    const now = this.chosen.sort ?? "";
    this.choose({ sort: now === key ? "-" + key : now === "-" + key ? "" : key });
  }

  /** Takes what was chosen in the address. */
  filter(chosen) {
    this.chosen = chosen;
    this.shown = filterOf(chosen);
    this.rows = page;
    if (document.activeElement !== $("search")) $("search").value = chosen.name ?? "";
    for (const [key] of columns) {
      const sorted = (chosen.sort ?? "").replace(/^-/, "") === key;
      const down = sorted && chosen.sort.startsWith("-");
      if (sorted) $("column-" + key).setAttribute("aria-sort", down ? "descending" : "ascending");
      else $("column-" + key).removeAttribute("aria-sort");
      $("sort-" + key).lastChild.textContent = sorted ? (down ? " ↓" : " ↑") : "";
    }
    $("clear").hidden = !["health", "position", "zone", "rollout", "reason", "kubelet", "name"].some((key) => chosen[key]);
  }

  draw(nodes = this.nodes) {
    this.nodes = nodes;
    const counts = { health: [], position: [] }; // by number
    const values = { zone: new Set(), rollout: new Set(), kubelet: new Set(), reason: new Set() };
    const all = [];
    for (const n of nodes.values()) {
      for (const key of ["zone", "rollout", "kubelet"]) values[key].add(n[key]);
      if (n.reason) values.reason.add(reasonOf(n));
      for (const kind of ["health", "position"]) counts[kind][n[kind]] = (counts[kind][n[kind]] ?? 0) + 1;
      if (this.shown(n)) all.push(n);
    }
    this.legend(counts);
    this.choices(values);
    all.sort(orderOf(this.chosen.sort));
    const list = all.slice(0, this.rows), reasons = differences(list);
    const key = JSON.stringify([list, this.scheme]);
    if (this.drawn !== key) {
      this.drawn = key;
      redraw($("nodes").tBodies[0], list.map((n) => this.row(n, reasons.get(n.name))));
    }
    $("nodes-words").textContent = all.length > list.length ? `${list.length} of ${all.length.toLocaleString("en")}` + (this.chosen.sort ? "." : ", most urgent first.") : all.length ? count(all.length, "node") : "No node matches.";
    $("more").hidden = all.length <= list.length;
    $("fleet-words").textContent = `${count(nodes.size, "node")} in ${count(values.zone.size, "zone")}` + (all.length < nodes.size ? `, ${all.length.toLocaleString("en")} shown` : "");
  }

  row(n, reason) {
    const word = reasonOf(n);
    return h("tr", { "data-node": n.name },
      h("th", { scope: "row" }, h("button", { id: "row-" + n.name, type: "button", class: "link-button", onclick: () => this.look(n.name) }, n.name)),
      h("td", { class: "state" }, picture(n.health, n.position), h("span", {}, healthName(n.health))),
      h("td", { class: "c-position" }, place(n)), h("td", { class: "c-zone" }, n.zone), h("td", { class: "c-rollout" }, n.rollout), h("td", { class: "c-kubelet" }, n.kubelet),
      h("td", { class: "why", title: n.reason || null }, word && word !== "Other" && [h("strong", {}, word), reason ? ": " : ""], reason));
  }

  /** Draws the number of nodes with each health and at each position, as buttons that show only these. */
  legend(counts) {
    const key = JSON.stringify([counts, this.chosen.health, this.chosen.position, this.scheme]);
    if (this.legendDrawn === key) return;
    this.legendDrawn = key;
    const group = (kind, name, meaning, sign) => words[kind].map((word, i) => {
      const n = counts[kind][i] ?? 0, pressed = (this.chosen[kind] ?? "").split(",").includes(word);
      return word && (n > 0 || pressed) && this.chip(`${kind}-${word}`, sign(i), name(i), n, meaning(i), pressed, () => this.toggle(kind, word));
    });
    const updated = words.position.indexOf("Updated");
    const positions = group("position", positionName, positionMeaning, (i) => picture(null, i));
    const chips = (title, list) => h("div", { class: "legend", role: "group", "aria-label": `Show only nodes by ${title.toLowerCase()}` }, h("span", { class: "legend-title" }, title), list);
    redraw($("legend"),
      chips("Health", group("health", healthName, healthMeaning, (i) => picture(i, updated))),
      positions.some(Boolean) && chips("Position", [positions, h("span", { class: "muted no-rollout" }, picture(null, 0), "no rollout")]));
  }

  chip(id, sign, name, n, means, pressed, onclick) {
    return h("button", { id, type: "button", class: "chip", "aria-pressed": String(pressed), title: means, onclick }, sign, name, h("span", { class: "n" }, n.toLocaleString("en")));
  }

  toggle(kind, word) {
    const now = (this.chosen[kind] ?? "").split(",").filter(Boolean);
    this.choose({ [kind]: (now.includes(word) ? now.filter((w) => w !== word) : [...now, word]).join(",") });
  }

  /** Draws the lists of values to filter by. A list with one value is left out. */
  choices(values) {
    const key = JSON.stringify([Object.values(values).map((v) => [...v].sort()), this.chosen]);
    if (this.choicesDrawn === key) return;
    this.choicesDrawn = key;
    redraw($("choices"), [["zone", "Zone"], ["rollout", "Rollout"], ["reason", "Reason"], ["kubelet", "Kubelet"]].map(([name, title]) => {
      const now = this.chosen[name] ?? "", all = new Set(values[name]);
      if (name === "reason") all.delete("");
      if (all.size < (name === "reason" ? 1 : 2) && !now) return null;
      if (now && now !== "none") all.add(now);
      const sorted = [...all].sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
      return choice("filter-" + name, title, [["", "all"], ...sorted.map((v) => [v || "none", v || "none"])], now, (v) => this.choose({ [name]: v }));
    }));
  }

  /** Draws everything again, in other colors. */
  repaint() {
    this.scheme = (this.scheme ?? 0) + 1;
    this.draw();
  }
}
