// The map of the fleet: one cell for each node, grouped by zone. It is one canvas, which draws thousands of cells faster than
// elements. For screen readers it is a listbox whose only option is the current node.

import { words, drawCell, color, healthColor, standing } from "./cells.js";
import { count, natural } from "./dom.js";

const sizes = [28, 24, 20, 17, 15, 13, 11, 9, 7]; // of a cell, in CSS pixels
const heading = 26;
const padding = 16; // of the map
const inset = 4; // of cells in the canvas, for the ring around the current one
const between = 16; // zones
const slice = 250; // cells that are drawn before the time is looked at
const frame = 8; // milliseconds of drawing in one frame

export class FleetMap {
  /** @param host the listbox @param look is called with the name of the node to open */
  constructor(host, look) {
    this.host = host;
    this.canvas = host.querySelector("canvas");
    this.option = host.querySelector("[role=option]");
    this.tip = host.querySelector(".tip");
    this.look = look;
    this.nodes = new Map();
    this.zones = [];  // {name, top, first, count}
    this.order = [];  // names, as they are drawn
    this.place = new Map(); // name -> index in order
    this.at = -1;     // index of the current node of the keyboard
    this.shown = () => true;
    this.stale = new Set();
    this.due = 0;
    this.next = 0;
    this.ringed = [];
    new ResizeObserver(() => { if (this.hostWidth !== host.clientWidth) this.layOut(); }).observe(host);
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      matchMedia(query).addEventListener("change", () => { this.sprites = null; this.layOut(); });
    }
    host.addEventListener("keydown", (e) => this.key(e));
    host.addEventListener("focus", () => this.go(this.at < 0 ? 0 : this.at));
    host.addEventListener("blur", () => this.later());
    this.canvas.addEventListener("pointermove", (e) => this.point(e));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (e) => {
      const i = this.under(e);
      if (i >= 0) { this.at = i; this.tell(); this.later(); this.look(this.order[i]); }
    });
  }

  /** Takes all nodes, and the names of those that changed. others: nodes were added or removed. */
  update(nodes, changed, others) {
    this.nodes = nodes;
    if (others) { this.layOut(); return; }
    for (const name of changed) {
      this.stale?.add(name);
      const i = this.place.get(name);
      if (i !== undefined) this.zoneOf(i).words = undefined;
    }
    this.later();
  }

  /** Dims the nodes for which shown returns false. */
  filter(shown) {
    this.shown = shown;
    this.stale = null;
    this.later();
  }

  select(name) {
    this.selected = name;
    const i = this.place.get(name);
    if (i !== undefined) { this.at = i; this.tell(); }
    this.later();
  }

  layOut() {
    const current = this.order[this.at];
    const zones = new Map();
    for (const n of this.nodes.values()) {
      if (!zones.has(n.zone)) zones.set(n.zone, []);
      zones.get(n.zone).push(n);
    }
    const names = [...zones.keys()].sort((a, b) => (natural(a) < natural(b) ? -1 : 1));
    for (const list of zones.values()) list.sort((a, b) => a.rank - b.rank);

    this.hostWidth = this.host.clientWidth;
    const width = Math.max(120, this.host.clientWidth - 2 * padding + inset);
    const room = Math.max(360, innerHeight * 0.56);
    for (const size of sizes) {
      this.size = size;
      this.gap = size > 12 ? 3 : 2;
      this.pitch = size + this.gap;
      this.perRow = Math.max(1, Math.floor((width - 2 * inset + this.gap) / this.pitch));
      this.zones = [];
      let top = 0, first = 0;
      for (const name of names) {
        const n = zones.get(name).length;
        this.zones.push({ name, top, first, count: n });
        top += heading + Math.ceil(n / this.perRow) * this.pitch + between;
        first += n;
      }
      this.height = Math.max(40, top - between + inset);
      if (this.height <= room) break;
    }
    this.order = names.flatMap((name) => zones.get(name).map((n) => n.name));
    this.place = new Map(this.order.map((name, i) => [name, i]));
    this.at = current === undefined ? -1 : this.place.get(current) ?? Math.min(this.at, this.order.length - 1);
    this.scale = Math.max(1, devicePixelRatio);
    this.width = width;
    const layout = JSON.stringify([width, this.height, this.scale, this.size, this.zones]);
    if (this.layout !== layout) { // resizing clears a canvas
      this.layout = layout;
      this.moved = true;
      this.canvas.width = Math.round(width * this.scale);
      this.canvas.height = Math.round(this.height * this.scale);
      this.canvas.style.width = width + "px";
      this.canvas.style.height = this.height + "px";
    }
    this.sprites = null;
    this.stale = null;
    this.later();
  }

  zoneOf(i) { return this.zones.findLast((z) => z.first <= i); }

  xy(i) {
    const z = this.zoneOf(i), k = i - z.first;
    return [inset + (k % this.perRow) * this.pitch, z.top + heading + Math.floor(k / this.perRow) * this.pitch];
  }

  /** Draws each kind of cell once: a row of positions for each health. */
  makeSprites() {
    const size = Math.round(this.size * this.scale), healths = words.health.length;
    const sheet = new OffscreenCanvas(size * words.position.length, size * healths);
    const g = sheet.getContext("2d");
    for (let health = 0; health < healths; health++) {
      for (let position = 0; position < words.position.length; position++) {
        // Each has its own canvas, so that cutting a corner does not affect others.
        const one = new OffscreenCanvas(size, size);
        drawCell(one.getContext("2d"), position, health, 0, 0, size, color(healthColor(health)), color("--h-ink"));
        g.drawImage(one, position * size, health * size);
      }
    }
    this.sprites = sheet;
    this.spriteSize = size;
  }

  later() {
    if (this.stale === null) this.host.setAttribute("aria-busy", "true");
    if (!this.due) this.due = requestAnimationFrame(() => { this.due = 0; this.draw(); });
  }

  /** Draws what changed. Drawing everything takes several frames, so that no task is long: this.next is the cell that follows. */
  draw() {
    const start = performance.now();
    if (!this.sprites) this.makeSprites();
    const g = this.canvas.getContext("2d");
    if (this.stale === null) {
      if (this.moved) g.clearRect(0, 0, this.canvas.width, this.canvas.height);
      this.moved = false;
      this.ringed = [];
      this.next = 0;
      this.stale = new Set();
    }
    const first = this.next;
    while (this.next < this.order.length && ((this.next - first) % slice || performance.now() - start < frame)) {
      const [x, y] = this.xy(this.next);
      g.clearRect((x - 3) * this.scale, (y - 3) * this.scale, (this.size + 4) * this.scale, (this.size + 4) * this.scale);
      this.drawAt(g, this.next, x, y);
      this.next++;
    }
    for (const name of this.stale) {
      const i = this.place.get(name);
      if (i === undefined || i >= this.next) continue;
      const [x, y] = this.xy(i);
      g.clearRect(Math.round(x * this.scale), Math.round(y * this.scale), this.spriteSize, this.spriteSize);
      this.drawAt(g, i, x, y);
    }
    this.stale = new Set();
    this.clean(g, this.ringed, 3);
    this.drawHeadings(g);
    const focused = this.host.matches(":focus") ? this.at : -1;
    const selected = this.place.get(this.selected) ?? -1;
    this.ringed = [...new Set([focused, selected])].filter((i) => i >= 0 && i < this.next);
    for (const i of this.ringed) this.ring(g, i, i === focused);
    const unfinished = this.next < this.order.length;
    this.host.setAttribute("aria-busy", String(unfinished));
    if (unfinished) this.later();
    performance.measure("draw", { start, detail: this.next - first });
    performance.clearMeasures("draw"); // observers have it
  }

  drawAt(g, i, x, y) {
    const n = this.nodes.get(this.order[i]);
    if (!n) return;
    const s = this.spriteSize;
    g.globalAlpha = this.shown(n) ? 1 : 0.16;
    g.drawImage(this.sprites, n.position * s, n.health * s, s, s, Math.round(x * this.scale), Math.round(y * this.scale), s, s);
    g.globalAlpha = 1;
  }

  drawHeadings(g) {
    g.save();
    g.scale(this.scale, this.scale);
    g.textBaseline = "middle";
    for (const z of this.zones) {
      g.clearRect(0, z.top, this.width, heading - 3);
      g.font = "600 13px system-ui, sans-serif";
      g.fillStyle = color("--text");
      const words = z.name || "no zone";
      g.fillText(words, inset, z.top + heading / 2 - 2);
      const after = inset + g.measureText(words).width + 8;
      g.font = "13px system-ui, sans-serif";
      g.fillStyle = color("--muted");
      g.fillText(this.wordsOf(z), after, z.top + heading / 2 - 2);
    }
    g.restore();
  }

  wordsOf(z) {
    if (z.words !== undefined) return z.words;
    let bad = 0, flight = 0;
    for (let i = z.first; i < z.first + z.count; i++) {
      const n = this.nodes.get(this.order[i]);
      if (!n) continue;
      if (n.problem) bad++;
      if (words.position[n.position] === "InFlight") flight++;
    }
    return (z.words = count(z.count, "node") + (flight ? ` · ${flight} in flight` : "") + (bad ? ` · ${bad} unhealthy` : ""));
  }

  /** Erases rings by drawing the cells around them again. */
  clean(g, ringed, reach) {
    const s = this.scale;
    for (const i of ringed) {
      if (i >= this.order.length) continue;
      const [x, y] = this.xy(i);
      g.save();
      g.beginPath();
      g.rect((x - reach) * s, (y - reach) * s, (this.size + 2 * reach) * s, (this.size + 2 * reach) * s);
      g.clip();
      g.clearRect((x - reach) * s, (y - reach) * s, (this.size + 2 * reach) * s, (this.size + 2 * reach) * s);
      for (const k of [i - this.perRow - 1, i - this.perRow, i - this.perRow + 1, i - 1, i, i + 1, i + this.perRow - 1, i + this.perRow, i + this.perRow + 1]) {
        if (k >= 0 && k < this.order.length) this.drawAt(g, k, ...this.xy(k));
      }
      g.restore();
    }
  }

  ring(g, i, focused) {
    const [x, y] = this.xy(i), s = this.scale;
    g.lineWidth = 2 * s;
    g.strokeStyle = color(focused ? "--focus" : "--text");
    g.beginPath();
    g.roundRect((x - 1) * s, (y - 1) * s, (this.size + 2) * s, (this.size + 2) * s, 4 * s);
    g.stroke();
  }

  under(e) {
    const y = e.offsetY, x = e.offsetX - inset;
    const z = this.zones.findLast((z) => z.top + heading <= y);
    if (!z) return -1;
    const k = Math.floor((y - z.top - heading) / this.pitch) * this.perRow + Math.floor(x / this.pitch);
    return x >= 0 && x < this.perRow * this.pitch && k >= 0 && k < z.count ? z.first + k : -1;
  }

  point(e) {
    const i = this.under(e);
    this.canvas.style.cursor = i < 0 ? "default" : "pointer";
    if (i < 0) { this.tip.hidden = true; return; }
    const n = this.nodes.get(this.order[i]);
    if (!n) return;
    this.tip.textContent = this.words(n);
    this.tip.hidden = false;
    const [x, y] = this.xy(i);
    const left = Math.min(x, Math.max(0, this.width - this.tip.offsetWidth));
    this.tip.style.transform = `translate(${left}px, ${y + this.size + 6}px)`;
  }

  words(n) {
    return `${n.name}, ${standing(n)}${n.reason ? ": " + n.reason : ""}${n.rollout ? ", rollout " + n.rollout : ""}${n.zone ? ", " + n.zone : ""}`;
  }

  /** Announces the current node. */
  tell() {
    const n = this.nodes.get(this.order[this.at]);
    if (!n) return;
    this.option.textContent = this.words(n);
    this.option.setAttribute("aria-posinset", this.at + 1);
    this.option.setAttribute("aria-setsize", this.order.length);
    this.option.setAttribute("aria-selected", String(n.name === this.selected));
    this.host.setAttribute("aria-activedescendant", "cell");
  }

  go(i) {
    if (!this.order.length) return;
    this.at = Math.max(0, Math.min(this.order.length - 1, i));
    this.tell();
    const [, y] = this.xy(this.at);
    const top = this.canvas.getBoundingClientRect().top + y;
    if (top < 0 || top + this.size > innerHeight) scrollBy({ top: top - innerHeight / 2 });
    this.later();
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const z = this.zoneOf(Math.max(0, this.at));
    const zone = this.zones.indexOf(z);
    switch (e.key) {
      case "ArrowRight": this.go(this.at + 1); break;
      case "ArrowLeft": this.go(this.at - 1); break;
      case "ArrowDown": this.vertically(1); break;
      case "ArrowUp": this.vertically(-1); break;
      case "Home": this.go(0); break;
      case "End": this.go(this.order.length - 1); break;
      case "PageDown": this.go(this.zones[Math.min(this.zones.length - 1, zone + 1)].first); break;
      case "PageUp": this.go(this.at > z.first ? z.first : this.zones[Math.max(0, zone - 1)].first); break;
      case "n": this.nextUnhealthy(); break;
      case "Enter": case " ": if (this.at >= 0) this.look(this.order[this.at]); break;
      default: return;
    }
    e.preventDefault();
  }

  /** Moves to the cell above or below, also into another zone. */
  vertically(by) {
    const z = this.zoneOf(this.at), k = this.at - z.first, column = k % this.perRow;
    if (by > 0 && Math.floor(k / this.perRow) < Math.floor((z.count - 1) / this.perRow)) {
      this.go(Math.min(this.at + this.perRow, z.first + z.count - 1));
    } else if (by < 0 && k >= this.perRow) {
      this.go(this.at - this.perRow);
    } else {
      const other = this.zones[this.zones.indexOf(z) + by];
      if (!other) return;
      const row = by > 0 ? 0 : Math.floor((other.count - 1) / this.perRow);
      this.go(Math.min(other.first + row * this.perRow + column, other.first + other.count - 1));
    }
  }

  /** Moves to the next node whose health needs a person. */
  nextUnhealthy() {
    for (let k = 1; k <= this.order.length; k++) {
      const i = (this.at + k) % this.order.length;
      const n = this.nodes.get(this.order[i]);
      if (n?.problem) { this.go(i); return; }
    }
  }
}
