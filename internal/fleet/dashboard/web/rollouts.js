// The rollouts: a card for each. The open card has actions, changes, rules and history.

import { h, $, redraw, ask, ago, clock } from "./dom.js";

export class Rollouts {
  /** @param look is called with the name of a node @param say is called with announcements for screen readers */
  constructor(host, look, say) {
    this.host = host;
    this.look = look;
    this.say = say;
    this.list = [];
    this.ready = false; // the list is complete
    this.open = null; // the name of the open rollout
    this.detail = null;
    this.error = "";
    $("confirm-no").addEventListener("click", () => $("confirm").close());
    $("confirm-yes").addEventListener("click", () => this.carryOut());
    setInterval(() => this.draw(), 5000); // update the times
    // Permissions and the controller can change without the rollout.
    setInterval(() => { if (!document.hidden && this.list.some((r) => r.name === this.open)) this.read(); }, 10000);
  }

  update(list, ready) {
    if (this.open === null && list.length) {
      this.open = (list.find((r) => r.tone === "bad") ?? list.find((r) => r.tone !== "good") ?? list[0]).name;
    }
    const before = this.list.find((r) => r.name === this.open), now = list.find((r) => r.name === this.open);
    for (const r of list) {
      const was = this.list.find((x) => x.name === r.name);
      if (was && was.phase !== r.phase) this.say(`Rollout ${r.name} is ${r.phase}`);
    }
    this.list = list;
    this.ready = ready;
    if (now && (!before || before.version !== now.version || !this.detail || this.error)) this.read();
    this.draw();
  }

  show(name) {
    this.open = this.open === name ? "" : name;
    this.detail = null;
    this.error = "";
    this.done = "";
    this.draw();
    if (this.open) this.read();
  }

  /** Reads the open rollout, and again if it changes in the meantime, at most once a second. */
  async read() {
    if (this.reading) { this.again = true; return; }
    const name = this.open;
    this.reading = true;
    this.again = false;
    try {
      const detail = await (await ask("api/rollouts/" + encodeURIComponent(name))).json();
      if (name === this.open) { this.detail = detail; this.error = ""; }
    } catch (e) {
      if (name === this.open) this.error = e.message;
    }
    this.draw();
    await new Promise((done) => setTimeout(done, 1000));
    this.reading = false;
    if (this.again || name !== this.open) this.open && this.read();
  }

  draw() {
    if (!this.list.length) {
      if (this.ready) redraw(this.host, h("p", { class: "muted" }, "There are no rollouts. Create one with ", h("code", {}, "kubectl evenkeel push"), "."));
      return;
    }
    const text = JSON.stringify([this.list, this.open, this.detail, this.error, this.done, Math.floor(Date.now() / 5000)]);
    if (text === this.drawn) return;
    this.drawn = text;
    redraw(this.host, this.list.map((r) => this.card(r)));
  }

  card(r) {
    const open = r.name === this.open;
    const id = "rollout-" + r.name;
    return h("article", { class: "card", "data-tone": r.tone, "data-rollout": r.name, "aria-labelledby": id + "-title" },
      h("h3", { id: id + "-title" },
        h("button", { id, type: "button", class: "plain title", "aria-expanded": String(open), "aria-controls": id + "-body", onclick: () => this.show(r.name) },
          h("span", { class: "name" }, r.name), h("span", { class: "phase" }, r.phase))),
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
      h("ul", { class: "counts", "aria-label": "Nodes by state" }, parts.map((c) => h("li", {}, h("span", { class: "swatch c-" + id(c), "aria-hidden": "true" }), `${c.n.toLocaleString("en")} ${c.state.toLowerCase()}`))),
    ];
  }

  body(r) {
    const d = this.detail?.name === r.name ? this.detail : null;
    return [
      r.message && h("p", { class: "message" }, r.message),
      r.requests && h("ul", { class: "requests", "aria-label": "Requests" }, r.requests.map((q) => h("li", {}, q.words, h("span", { class: "muted" }, ` · ${ago(q.time)} ago`)))),
      r.steps && [h("h4", {}, "Steps"), h("ol", { class: "steps" }, r.steps.map((s) =>
        h("li", { "data-state": s.state, "aria-current": s.state === "now" ? "step" : null },
          h("span", { class: "mark", "aria-hidden": "true" }, s.state === "done" ? "✓" : s.state === "now" ? "▶" : ""),
          h("span", {}, s.words, h("span", { class: "sr" }, { done: ", done", now: ", now", next: ", to come" }[s.state])),
          s.until && h("span", { class: "muted" }, ` until ${clock(s.until)}`))))],
      r.gates && [h("h4", {}, "Gates"), h("ul", { class: "gates", "aria-label": "Gates of " + r.name }, r.gates.map((g) =>
        h("li", { "data-state": g.state, title: g.query }, h("strong", {}, g.name), ` ${g.state}`, h("span", { class: "muted clamp" }, g.words))))],
      h("dl", { class: "facts" },
        r.budget && [h("dt", {}, "Unavailable"), h("dd", {}, `${r.budget.used} of ${r.budget.of} allowed`, this.meter(r.budget))],
        r.asked && [h("dt", {}, "Asked"), h("dd", {}, r.asked[0])],
        r.window && [h("dt", {}, "Next window"), h("dd", {}, r.window)],
        h("dt", {}, "Failed"), h("dd", {}, `${r.failures.n} (stops at ${r.failures.most})`)),
      r.asked?.length > 1 && h("ul", { class: "failures", "aria-label": "Answers of the preflight" }, r.asked.slice(1).map((line) => h("li", {}, line))),
      r.failures.nodes && h("ul", { class: "failures", "aria-label": "Failed nodes" }, r.failures.nodes.map((f) =>
        h("li", {}, h("button", { type: "button", class: "link-button", id: `fail-${r.name}-${f.name}`, onclick: () => this.look(f.name) }, f.name), " ", h("strong", {}, f.reason), h("span", { class: "muted clamp" }, f.message)))),
      r.failures.n > (r.failures.nodes?.length ?? 0) && h("p", { class: "muted" }, `and ${r.failures.n - (r.failures.nodes?.length ?? 0)} more`),
      this.done && Date.now() - this.doneAt < 60000 && h("p", { class: "done" }, this.done),
      this.error && h("p", { class: "error" }, this.error),
      d ? this.more(r, d) : !this.error && h("p", { class: "muted" }, "Reading …"),
    ];
  }

  meter(b) {
    const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("span", { class: b.used >= b.of ? "full" : "" }));
    meter.firstChild.style.width = Math.min(100, (100 * b.used) / Math.max(1, b.of)) + "%";
    return meter;
  }

  more(r, d) {
    return [
      d.notes?.map((n) => h("p", { class: "banner waits" }, n)),
      h("div", { class: "actions", role: "group", "aria-label": "Actions on " + r.name }, d.actions.map((a) => this.button(r, a))),
      d.mayNot && h("p", { class: "may-not" }, "This page cannot change anything: ", d.mayNot, "."),
      d.changes && h("details", { id: "changes-" + r.name, open: true }, h("summary", {}, `What ${d.changes.to} changes`, h("span", { class: "muted" }, ` from ${d.changes.from}`)),
        d.changes.error ? h("p", { class: "error" }, d.changes.error) : h("pre", { tabindex: "0", "aria-label": "Changes, field by field" }, d.changes.words.trim() || "no field differs")),
      h("details", { id: "rules-" + r.name }, h("summary", {}, "Rules"), h("dl", { class: "facts" }, d.rules.map((l) => [h("dt", {}, l.key), h("dd", {}, l.text)]))),
      h("details", { id: "history-" + r.name, open: true }, h("summary", {}, "History"), d.noHistory ? h("p", { class: "error" }, d.noHistory) : this.history(r, d)),
    ];
  }

  history(r, d) {
    return h("div", { class: "scroll" }, h("table", { class: "history", "aria-label": "Revisions of " + r.name },
      h("thead", {}, h("tr", {}, ["Revision", "Outcome", "Nodes", "Started"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, [...d.history].reverse().map((p) => h("tr", {}, h("th", { scope: "row" }, String(p.revision)), h("td", { title: p.message }, p.outcome ?? "", p.reason && `: ${p.reason}`, p.gone ? " (gone)" : "", p.requested?.map((q) => h("span", { class: "muted requested" }, q))),
        h("td", {}, [p.updated && `${p.updated} updated`, p.failed && `${p.failed} failed`].filter(Boolean).join(", ")), h("td", {}, p.ago ?? ""))))));
  }

  button(r, a) {
    const why = `why-${r.name}-${a.verb}`;
    return h("span", { class: "action" },
      h("button", {
        id: `do-${r.name}-${a.verb}`, type: "button", class: a.grave ? "grave" : "", "aria-disabled": a.not ? "true" : null, "aria-describedby": a.not ? why : null, title: a.not || a.means,
        onclick: () => { if (!a.not) this.confirm(r, a); else this.say(a.not); },
      }, a.title),
      a.not && h("span", { id: why, class: "sr" }, "Not now: " + a.not));
  }

  confirm(r, a) {
    this.asked = { r, a }; // of the dialog
    $("confirm-title").textContent = `${a.title}: ${r.name}, revision ${r.revision}?`;
    $("confirm-means").textContent = a.means;
    $("confirm-cost").textContent = r.restartCosts?.[a.restarts] ?? "";
    $("confirm-cost").hidden = !$("confirm-cost").textContent;
    $("confirm-command").textContent = a.command;
    $("confirm-error").textContent = "";
    $("confirm-reason").value = "";
    $("confirm-reason-label").hidden = !a.reason;
    const yes = $("confirm-yes");
    yes.textContent = a.title;
    yes.disabled = false;
    yes.className = a.grave ? "primary grave" : "primary";
    $("confirm").showModal();
    $("confirm-no").focus();
  }

  async carryOut() {
    const yes = $("confirm-yes"), asked = this.asked, { r, a } = asked;
    if (!$("confirm").open || yes.disabled) return; // it is in progress, or was canceled
    const stillAsked = () => $("confirm").open && this.asked === asked;
    yes.disabled = true;
    $("confirm-error").textContent = "";
    try {
      const response = await ask(`api/rollouts/${encodeURIComponent(r.name)}/${a.verb}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ revision: r.revision ?? 0, step: r.step, reason: a.reason ? $("confirm-reason").value : "" }),
      });
      this.done = (await response.json()).words;
      this.doneAt = Date.now();
      this.say(this.done);
      if (stillAsked()) {
        $("confirm").close();
        $(`do-${r.name}-${a.verb}`)?.focus();
      }
    } catch (e) {
      if (stillAsked()) {
        $("confirm-error").textContent = e.message;
        yes.disabled = false;
      } else {
        this.say(`${a.title}: ${r.name}: ${e.message}`);
      }
    }
    this.read();
    this.draw();
  }
}
