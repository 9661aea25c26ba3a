// The panel of one node: its standing, what happens next, the trial, its log, and its configurations side by side.

import { h, $, redraw, withCommands } from "./dom.js";
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
    setInterval(() => {
      if (!this.name || document.hidden) return;
      this.read();
      if (this.configError) this.readConfig();
    }, 10000);
  }

  /** Opens the panel of a node. cell returns what the map knows of it. */
  open(name, cell) {
    this.cell = cell;
    if (this.name === name) return;
    this.name = name;
    this.section.hidden = false;
    $("node-title").textContent = name;
    this.node = this.config = null;
    this.error = this.configError = "";
    this.live = false;
    this.drawn = "";
    this.draw();
    this.read();
    this.readConfig();
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
    this.readConfig();
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

  async readConfig() {
    const name = this.name, live = this.live, path = cluster.path, current = () => name === this.name && path === cluster.path;
    try {
      const config = await get(`nodes/${encodeURIComponent(name)}/config${live ? "?live" : ""}`);
      if (!current() || live !== this.live) return;
      this.config = config;
      this.configError = "";
    } catch (e) {
      if (!current()) return;
      this.configError = e.message;
    }
    this.draw();
  }

  draw() {
    const cell = this.cell?.(this.name);
    const text = JSON.stringify([this.name, cell, this.node, this.error, this.config, this.configError, this.live]);
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
      ],
      this.configError && h("p", { class: "error" }, this.configError),
      this.config && this.configs(this.config),
      n && [
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

  configs(c) {
    const unknown = (i) => c.columns[i].not && !c.fields.some((f) => f.values[i]);
    const shown = c.columns.map((_, i) => i).filter((i) => !unknown(i));
    return [
      h("h3", {}, "Configurations"),
      c.fields.length > 0 && h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Configurations, scrollable" }, h("table", { class: "config", "aria-label": "Configurations of the node, field by field" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Field"), shown.map((i) => h("th", { scope: "col", title: c.columns[i].source }, c.columns[i].title)))),
        h("tbody", {}, c.fields.map((f) => h("tr", { class: f.differs ? "differs" : "" },
          h("th", { scope: "row" }, h("code", {}, f.field), f.differs && h("span", { class: "differs-mark", title: "differs" }, " ≠", h("span", { class: "sr" }, " differs"))),
          shown.map((i) => h("td", {}, f.values[i] ? h("code", {}, f.values[i]) : h("span", { class: "muted" }, "–")))))))),
      c.same > 0 && h("p", { class: "muted" }, c.same === 1 ? "1 more effective field is in no assignment." : `${c.same.toLocaleString("en")} more effective fields are in no assignment.`),
      h("dl", { class: "lines" }, c.columns.map((col) => [h("dt", {}, col.title), h("dd", { class: col.not ? "muted" : "" }, col.not || col.source)])),
      !this.live && h("div", {}, h("button", { id: "ask-kubelet", type: "button", onclick: () => { this.live = true; this.readConfig(); } }, "Read the effective configuration from the kubelet"),
        h("p", { class: "muted small" }, "This needs permission to get nodes/proxy.")),
    ];
  }
}
