// The dialog that asks before an action changes a rollout. It shows the equivalent command and what restarts cost.

import { h, $, redraw, command } from "./dom.js";
import { ask, cluster, get } from "./ask.js";

export class Confirmation {
  /** @param say announces @param done is called with the rollout, the action, and what was written @param back returns the element that gets the focus */
  constructor(say, done, back) {
    this.say = say;
    this.done = done;
    this.back = back;
    $("confirm-no").addEventListener("click", () => $("confirm").close());
    $("confirm-yes").addEventListener("click", () => this.carryOut());
  }

  ask(r, a) {
    this.asked = { r, a, path: cluster.path };
    $("confirm-title").textContent = `${a.title}: ${r.name}, revision ${r.revision}?`;
    $("confirm-means").textContent = a.means;
    this.foresee(this.asked);
    redraw($("confirm-command"), h("span", { class: "muted" }, "The same as"), command(a.command));
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

  /** Shows what the action does to the nodes. The action does not wait for it. */
  async foresee(asked) {
    const { r, a } = asked, cost = $("confirm-cost");
    cost.hidden = !a.moves;
    if (!a.moves) return;
    cost.textContent = "Reading what the nodes will do …";
    const words = await get(`rollouts/${encodeURIComponent(r.name)}/effect/${a.verb}`)
      .then((e) => e.lines.join(". ") + ".", (e) => "It is not known what the nodes will do: " + e.message);
    if (this.asked === asked) cost.textContent = words;
  }

  async carryOut() {
    const yes = $("confirm-yes"), asked = this.asked, { r, a, path } = asked;
    if (!$("confirm").open || yes.disabled) return; // it is in progress, or was canceled
    const stillAsked = () => $("confirm").open && this.asked === asked;
    yes.disabled = true;
    $("confirm-error").textContent = "";
    try {
      const response = await ask(`${path}rollouts/${encodeURIComponent(r.name)}/${a.verb}`, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ revision: r.revision ?? 0, step: r.step, reason: a.reason ? $("confirm-reason").value : "" }),
      });
      const words = (await response.json()).words;
      this.done(r, a, words);
      this.say(words);
      if (stillAsked()) {
        $("confirm").close();
        this.back(r, a)?.focus();
      }
    } catch (e) {
      if (stillAsked()) {
        $("confirm-error").textContent = e.message;
        yes.disabled = false;
      } else {
        this.say(`${a.title}: ${r.name}: ${e.message}`);
      }
      this.done(r, a, "");
    }
  }
}
