// The panel of one node: the output of `kubectl evenkeel node`, the trial, and the node's configurations side by side.

import { h, $, redraw, ask } from "./dom.js";

export class NodePanel {
  /** @param closed is called when the panel was closed */
  constructor(closed) {
    this.closed = closed;
    this.section = $("node");
    this.body = $("node-body");
    $("node-close").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (e) => { if (e.key === "Escape" && this.name && !$("confirm").open) this.close(); });
    setInterval(() => { if (this.name && !document.hidden) this.read(); }, 10000);
  }

  open(name, focus) {
    const other = this.name !== name;
    this.name = name;
    this.section.hidden = false;
    $("node-title").textContent = name;
    if (other) {
      this.node = this.config = null;
      this.error = this.configError = "";
      this.live = false;
      this.draw();
    }
    this.read();
    if (other) this.readConfig();
    if (focus) $("node-title").focus();
  }

  close() {
    const name = this.name;
    this.name = "";
    this.section.hidden = true;
    this.closed(name);
  }

  /** Reads the node again after a change. */
  changed() {
    this.read();
    this.readConfig();
  }

  async read() {
    const name = this.name;
    try {
      const node = await (await ask("api/nodes/" + encodeURIComponent(name))).json();
      if (name !== this.name) return;
      this.node = node;
      this.error = "";
    } catch (e) {
      if (name !== this.name) return;
      this.error = e.message;
    }
    this.draw();
  }

  async readConfig() {
    const name = this.name, live = this.live;
    try {
      const config = await (await ask(`api/nodes/${encodeURIComponent(name)}/config${live ? "?live" : ""}`)).json();
      if (name !== this.name || live !== this.live) return;
      this.config = config;
      this.configError = "";
    } catch (e) {
      if (name !== this.name) return;
      this.configError = e.message;
    }
    this.draw();
  }

  draw() {
    const text = JSON.stringify([this.name, this.node, this.error, this.config, this.configError, this.live]);
    if (text === this.drawn) return;
    this.drawn = text;
    const n = this.node;
    redraw(this.body,
      this.error && h("p", { class: "error" }, this.error),
      !n && !this.error && h("p", { class: "muted" }, "Reading …"),
      n && [
        h("h3", {}, "What happens next"), h("ul", { class: "next" }, n.next.map((s) => h("li", {}, s))),
        n.trial && this.trial(n.trial),
        h("h3", {}, "Status"), h("dl", { class: "lines" }, n.lines.map((l) => [h("dt", {}, l.key), h("dd", {}, l.text)])),
        n.note && h("p", { class: "muted" }, n.note),
      ],
      this.configError && h("p", { class: "error" }, this.configError),
      this.config && this.configs(this.config));
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
      c.fields.length > 0 && h("div", { class: "scroll" }, h("table", { class: "config", "aria-label": "Configurations of the node, field by field" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Field"), shown.map((i) => h("th", { scope: "col", title: c.columns[i].source }, c.columns[i].title)))),
        h("tbody", {}, c.fields.map((f) => h("tr", { class: f.differs ? "differs" : "" },
          h("th", { scope: "row" }, f.field, f.differs && h("span", { class: "differs-mark", title: "differs" }, " ≠", h("span", { class: "sr" }, " differs"))),
          shown.map((i) => h("td", {}, h("code", {}, f.values[i] ?? "") , !f.values[i] && h("span", { class: "muted" }, "–")))))))),
      c.same > 0 && h("p", { class: "muted" }, `${c.same} more effective fields are in no assignment.`),
      h("dl", { class: "lines" }, c.columns.map((col) => [h("dt", {}, col.title), h("dd", { class: col.not ? "muted" : "" }, col.not || col.source)])),
      !this.live && h("button", { id: "ask-kubelet", type: "button", onclick: () => { this.live = true; this.readConfig(); } }, "Read the effective configuration from the kubelet"),
      !this.live && h("p", { class: "muted" }, "This needs permission to get nodes/proxy."),
    ];
  }
}
