// The panel of one node: its standing, what happens next, the trial, its status and its log.

import { h, $, redraw, command, withCommands } from "./dom.js";
import { get, cluster } from "./ask.js";
import { picture, healthName, place, healthMeaning, positionMeaning } from "./cells.js";
import { log } from "./log.js";

export class NodePanel {
  /** @param closed is called when a person closes the panel @param look opens another node */
  constructor(closed) {
    this.name = "";
    this.section = $("node");
    this.body = $("node-body");
    $("node-close").addEventListener("click", closed);
    document.addEventListener("keydown", (e) => { if (e.key === "Escape" && this.name && !$("confirm").open) closed(); });
    setInterval(() => { if (this.name && !document.hidden) this.read(); }, 10000);
  }

  /** Opens the panel of a node. cell returns what the map knows of it. */
  open(name, cell) {
    this.cell = cell;
    if (this.name === name) return;
    this.name = name;
    this.section.hidden = false;
    $("node-title").textContent = name;
    this.node = null;
    this.error = "";
    this.drawn = "";
    this.draw();
    this.read();
    $("node-title").focus({ preventScroll: true });
    this.section.scrollTop = 0;
  }

  close() {
    this.name = "";
    this.section.hidden = true;
  }

  /** Reads the node again after a change. */
  changed() {
    this.draw();
    this.read();
  }

  async read() {
    const name = this.name, path = cluster.path, current = () => name === this.name && path === cluster.path;
    try {
      const node = await get("nodes/" + encodeURIComponent(name));
      if (!current()) return;
      this.node = node;
      this.error = "";
    } catch (e) {
      if (!current()) return;
      this.error = e.message;
    }
    this.draw();
  }

  draw() {
    const cell = this.cell?.(this.name);
    const text = JSON.stringify([this.name, cell, this.node, this.error]);
    if (text === this.drawn) return;
    this.drawn = text;
    const n = this.node;
    redraw(this.body,
      cell && h("ul", { class: "standing", "aria-label": "Standing" },
        h("li", { title: healthMeaning(cell.health) }, picture(cell.health, cell.position, 16), h("strong", {}, healthName(cell.health))),
        cell.position > 0 && h("li", { title: positionMeaning(cell.position) }, place(cell), cell.rollout && [" in ", cell.rollout]),
        cell.zone && h("li", {}, cell.zone), cell.kubelet && h("li", {}, cell.kubelet)),
      this.error && h("p", { class: "error" }, this.error),
      !n && !this.error && h("p", { class: "muted" }, "Reading …"),
      n && [
        h("h3", {}, "What happens next"), h("ul", { class: "next" }, n.next?.map((s) => h("li", {}, withCommands(s, n.commands)))),
        n.trial && this.trial(n.trial),
        n.diff && h("div", {}, h("span", { class: "muted" }, "What its rollout changes on it"), command(n.diff)),
        h("h3", {}, "Status"), h("dl", { class: "lines" }, n.lines.map((l) => [h("dt", {}, l.key), h("dd", {}, withCommands(l.text, n.commands))])),
        n.note && h("p", { class: "muted" }, n.note),
        n.log && [h("h3", {}, "Log"), log("node", Array.isArray(n.log) ? { entries: n.log } : n.log, this.name, null, null, n.commands)],
      ]);
  }

  trial(t) {
    const part = Math.min(1, t.healthySeconds / Math.max(1, t.durationSeconds));
    const bar = h("div", { class: "trial-bar", role: "progressbar", "aria-label": "Trial", "aria-valuemin": "0", "aria-valuemax": String(t.durationSeconds), "aria-valuenow": String(Math.min(t.healthySeconds, t.durationSeconds)) }, h("span", {}));
    bar.firstChild.style.width = 100 * part + "%";
    return [h("h3", {}, "Trial"), bar, h("p", { class: "muted" }, `healthy for ${t.healthySeconds} s of ${t.durationSeconds} s, ${t.restarts} of ${t.crashLoopThreshold} restarts`)];
  }
}
