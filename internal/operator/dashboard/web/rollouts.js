// The rollouts, most urgent first: a card for each. The open card has its failed nodes, steps, log, history and rules.

import { h, $, redraw, ago, clock, command, withCommands, short, spaced, number } from "./dom.js";
import { get } from "./ask.js";
import { Confirmation } from "./confirm.js";
import { log } from "./log.js";

const fewFailed = 5; // failed nodes that are shown at first

export class Rollouts {
  /**
   * @param look is called with the name of a node @param show is called with the name of a rollout to open, or with none
   * @param say announces @param choose changes choices of the address
   */
  constructor(host, look, show, say, choose) {
    this.host = host;
    this.look = look;
    this.show = show;
    this.say = say;
    this.choose = choose;
    this.reset();
    this.confirmation = new Confirmation(say, (r, a, words) => {
      if (words) [this.done, this.doneAt, this.doneOf] = [words, Date.now(), r.name + "/" + r.revision];
      this.menu = false;
      this.draw();
      this.read();
    }, (r, a) => $(`do-${r.name}-${a.verb}`) ?? $("menu-" + r.name) ?? $("rollout-" + r.name));
    document.addEventListener("click", (e) => { if (this.menu && !e.target.closest(".menu")) this.setMenu(false); });
    host.addEventListener("keydown", (e) => {
      if (e.key !== "Escape" || !this.menu) return;
      e.stopPropagation();
      this.setMenu(false);
      $("menu-" + this.open)?.focus();
    });
    host.addEventListener("toggle", (e) => {
      if (e.target.open && e.target.id.startsWith("log-") && !this.entries) this.read();
    }, true);
    setInterval(() => this.draw(), 5000); // update the times
    // Permissions and the controller can change without the rollout.
    setInterval(() => { if (!document.hidden && this.list.some((r) => r.name === this.open)) this.read(); }, 10000);
  }

  /** Forgets everything, for another cluster. */
  reset() {
    this.turn = {}; // reads of an earlier turn are about another cluster, which can have rollouts of the same name
    this.reading = false;
    this.list = [];
    this.ready = false; // the list is complete
    this.open = null; // the name of the open rollout
    this.picked = false; // somebody opened or closed a rollout; until then the most urgent one is open
    this.chosen = {};
    this.forget();
  }

  forget() {
    this.detail = this.entries = null;
    this.error = "";
    this.menu = this.allFailed = false;
  }

  /** Takes the list of a snapshot. */
  update(list, ready) {
    this.follow(list);
    const before = this.list.find((r) => r.name === this.open), now = list.find((r) => r.name === this.open);
    for (const r of list) {
      const was = this.list.find((x) => x.name === r.name);
      if (was && was.phase !== r.phase) this.say(`Rollout ${r.name} is ${spaced(r.phase)}`);
    }
    this.list = list;
    this.ready = ready;
    if (now && (!before || before.version !== now.version || !this.detail || this.error)) this.read();
    this.draw();
  }

  /** Opens the most urgent rollout, unless somebody has picked one or is about to act. */
  follow(list) {
    const open = list.find((r) => r.name === this.open);
    if (!list.length || this.picked || this.menu || document.querySelector("dialog[open]") || open && list[0].urgency >= open.urgency) return;
    this.open = list[0].name;
    this.forget();
  }

  /** Opens a rollout that the address names. Without a name the open one stays. */
  take(name, chosen) {
    this.chosen = chosen;
    if (name) this.picked = true;
    if (name && name !== this.open) {
      this.open = name;
      this.forget();
      this.read();
    }
    this.draw();
  }

  close() {
    this.open = "";
    this.picked = true;
    this.forget();
    this.draw();
  }

  setMenu(open) {
    this.menu = open;
    this.draw();
  }

  /** Reads the open rollout, and again if it changes in the meantime, at most once a second. */
  async read() {
    if (this.reading) { this.again = true; return; }
    const name = this.open, turn = this.turn, current = () => name === this.open && turn === this.turn;
    if (!name) return;
    this.reading = true;
    this.again = false;
    const path = "rollouts/" + encodeURIComponent(name);
    try {
      const detail = await get(path);
      if (current()) { this.detail = detail; this.error = ""; }
    } catch (e) {
      if (current()) this.error = e.message;
    }
    if (turn !== this.turn) return;
    this.draw();
    if ($("log-" + name)?.open) {
      const entries = await get(path + "/log").catch((e) => ({ error: e.message }));
      if (current()) this.entries = entries;
    }
    if (turn !== this.turn) return;
    this.draw();
    await new Promise((done) => setTimeout(done, 1000));
    if (turn !== this.turn) return;
    this.reading = false;
    if (this.again || name !== this.open) this.read();
  }

  draw() {
    if (!this.list.length) {
      redraw(this.host, this.ready ? h("p", { class: "muted empty" }, "There are no rollouts. Create one with ", h("code", {}, "kubectl evenkeel push NAME -f FILE --selector LABELS"), ".") : h("p", { class: "muted empty" }, "Loading …"));
      this.drawn = "";
      return;
    }
    const text = JSON.stringify([this.list, this.open, this.detail, this.entries, this.error, this.done, this.menu, this.allFailed, this.chosen, Math.floor(Date.now() / 5000)]);
    if (text === this.drawn) return;
    this.drawn = text;
    redraw(this.host, this.list.map((r) => this.card(r)));
  }

  card(r) {
    const open = r.name === this.open, id = "rollout-" + r.name;
    return h("article", { id: "card-" + r.name, class: open ? "card open" : "card", "data-tone": r.tone, "data-rollout": r.name, "aria-labelledby": id + "-title" },
      h("h3", { id: id + "-title" },
        h("button", { id, type: "button", class: "plain title", "aria-expanded": String(open), "aria-controls": open ? id + "-body" : null, onclick: () => (open ? this.show("") : this.show(r.name)) },
          h("span", { class: "name" }, r.name), h("span", { class: "phase" }, spaced(r.phase)))),
      h("p", { class: "muted sub" },
        r.revision ? `revision ${r.revision}` : "no revision yet", r.attempt > 1 ? `, attempt ${r.attempt}` : "",
        r.stopped ? ` · stopped ${ago(r.stopped)} ago` : r.started ? ` · started ${ago(r.started)} ago` : ""),
      this.bar(r),
      open && h("div", { id: id + "-body", class: "body" }, this.body(r)));
  }

  /** Draws the progress as a bar, with the number of each part below. */
  bar(r) {
    const parts = (r.counts ?? []).filter((c) => c.n > 0);
    const all = parts.reduce((sum, c) => sum + c.n, 0);
    if (!all) return null;
    const id = (c) => c.state.toLowerCase().replaceAll(" ", "-");
    return [
      h("div", { class: "bar", "aria-hidden": "true" }, parts.map((c) => {
        const part = h("span", { class: "part c-" + id(c) });
        part.style.flexGrow = Math.max(c.n, all / 60);
        return part;
      })),
      h("ul", { class: "counts", "aria-label": "Nodes by state" }, parts.map((c) => h("li", {}, h("span", { class: "swatch c-" + id(c), "aria-hidden": "true" }), `${number(c.n)} ${c.state.toLowerCase()}`))),
    ];
  }

  body(r) {
    const d = this.detail?.name === r.name ? this.detail : null;
    return [
      r.message && h("p", { class: "message" }, withCommands(r.message, r.commands)),
      this.actions(r, d),
      this.done && (this.doneOf === `${r.name}/${r.revision}`) && Date.now() - this.doneAt < 60000 && h("p", { class: "done" }, withCommands(this.done, r.commands)),
      this.error && h("p", { class: "error" }, this.error),
      d?.notes?.map((n) => h("p", { class: "banner waits" }, n)),
      this.failed(r),
      r.steps && h("ol", { class: "steps", "aria-label": "Steps" }, r.steps.map((s) =>
        h("li", { "data-state": s.state, "aria-current": s.state === "now" ? "step" : null },
          h("span", { class: "mark", "aria-hidden": "true" }, s.state === "done" ? "✓" : s.state === "now" ? "▶" : ""),
          h("span", {}, s.words, h("span", { class: "sr" }, { done: ", done", now: ", now", next: ", to come" }[s.state])),
          s.until && h("span", { class: "muted" }, ` until ${clock(s.until)}`)))),
      r.gates && [h("h4", {}, "Gates"), h("ul", { class: "gates", "aria-label": "Gates of " + r.name }, r.gates.map((g) =>
        h("li", { "data-state": g.state, title: g.query }, h("strong", {}, g.name), ` ${g.state}`, h("span", { class: "muted clamp" }, g.words))))],
      h("dl", { class: "facts" },
        r.budget && [h("dt", {}, "Unavailable"), h("dd", {}, `${number(r.budget.used)} of ${number(r.budget.of)} allowed`, this.meter(r.budget))],
        r.asked && [h("dt", {}, "Agents"), h("dd", {}, r.asked[0])],
        r.window && [h("dt", {}, "Next window"), h("dd", {}, r.window)],
        h("dt", {}, "Failed"), h("dd", {}, `${number(r.failures.n)} (stops at ${number(r.failures.most)})`)),
      r.asked?.length > 1 && h("ul", { class: "failures", "aria-label": "Answers of the preflight" }, r.asked.slice(1).map((line) => h("li", {}, line))),
      d ? this.more(r, d) : !this.error && h("p", { class: "muted" }, "Reading …"),
    ];
  }

  /** Draws the one action that a person most likely wants, and a menu of the others. Without the right there are none. */
  actions(r, d) {
    if (!d || d.mayNot) return null;
    const primary = d.actions.find((a) => a.primary && !a.not);
    const others = d.actions.filter((a) => a !== primary);
    return h("div", { class: "actions", role: "group", "aria-label": "Actions on " + r.name },
      primary && h("button", { id: `do-${r.name}-${primary.verb}`, type: "button", class: "primary", title: primary.means, onclick: () => this.confirmation.ask(r, primary) }, primary.title),
      h("div", { class: "menu" },
        h("button", { id: "menu-" + r.name, type: "button", "aria-expanded": String(this.menu), "aria-controls": this.menu ? "others-" + r.name : null, onclick: () => this.setMenu(!this.menu) }, primary ? "More actions" : "Actions", h("span", { class: "caret", "aria-hidden": "true" }, " ▾")),
        this.menu && h("ul", { id: "others-" + r.name, class: "others", "aria-label": "Other actions on " + r.name }, others.map((a) => h("li", {}, this.item(r, a))))));
  }

  item(r, a) {
    const why = `why-${r.name}-${a.verb}`;
    return h("button", {
      id: `do-${r.name}-${a.verb}`, type: "button", class: a.grave ? "grave" : "", "aria-disabled": a.not ? "true" : null, "aria-describedby": why,
      onclick: () => { if (!a.not) this.confirmation.ask(r, a); else this.say(a.not); },
    }, h("strong", {}, a.title), h("span", { id: why }, a.not ? "Not now: " + a.not : a.means));
  }

  failed(r) {
    const all = r.failures.nodes ?? [], shown = this.allFailed ? all : all.slice(0, fewFailed);
    if (!all.length) return null;
    return h("section", { class: "part-of" }, h("h4", {}, r.failures.n === 1 ? "1 failed node" : `${number(r.failures.n)} failed nodes`),
      h("ul", { class: "failures", "aria-label": "Failed nodes" }, shown.map((f) =>
        h("li", {}, h("button", { type: "button", class: "link-button", id: `fail-${r.name}-${f.name}`, onclick: () => this.look(f.name) }, f.name), " ", h("strong", {}, f.reason), h("span", { class: "muted clamp", title: f.message }, short(f.message))))),
      r.failures.n > shown.length && h("p", {}, h("button", { type: "button", id: "failed-" + r.name, class: "link-button", onclick: () => this.choose({ health: "Failed", rollout: r.name }) }, `Show all ${number(r.failures.n)} in the table`)));
  }

  meter(b) {
    const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("span", { class: b.used >= b.of ? "full" : "" }));
    meter.firstChild.style.width = Math.min(100, (100 * b.used) / Math.max(1, b.of)) + "%";
    return meter;
  }

  more(r, d) {
    return [
      d.diff && h("div", {}, h("span", { class: "muted" }, "What the revision changes"), command(d.diff)),
      h("details", { id: "log-" + r.name, open: Boolean(this.chosen.log) }, h("summary", {}, "Log"),
        !this.entries ? h("p", { class: "muted" }, "Reading …") : this.entries.error ? h("p", { class: "error" }, this.entries.error)
          : log(r.name, this.entries, this.chosen.log ?? "", this.look, (node) => this.choose({ log: node }), r.commands)),
      h("details", { id: "history-" + r.name }, h("summary", {}, "History"), d.noHistory ? h("p", { class: "error" }, d.noHistory) : this.history(r, d)),
      h("details", { id: "rules-" + r.name }, h("summary", {}, "Rules"), h("dl", { class: "facts" }, d.rules.map((l) => [h("dt", {}, l.key), h("dd", {}, l.text)]))),
    ];
  }

  history(r, d) {
    return h("div", { class: "scroll" }, h("table", { class: "compact history", "aria-label": "Revisions of " + r.name },
      h("thead", {}, h("tr", {}, ["Revision", "Outcome", "Nodes", "Started"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, [...d.history].reverse().map((p) => h("tr", {}, h("th", { scope: "row" }, String(p.revision)), h("td", { title: p.message }, p.outcome ?? "", p.reason && `: ${p.reason}`, p.gone ? " (gone)" : "", p.endTime && p.message && h("span", { class: "muted requested" }, p.message)),
        h("td", {}, [p.updated && `${number(p.updated)} updated`, p.failed && `${number(p.failed)} failed`].filter(Boolean).join(", ")), h("td", {}, p.ago ?? ""))))));
  }
}

