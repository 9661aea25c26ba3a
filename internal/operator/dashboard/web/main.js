// The dashboard page: receives the snapshots of a cluster from internal/operator/dashboard, and lets the other modules draw what the
// address names: the summary, the rollouts, the map, the table and the panel of a node.

import { h, $, redraw, clock, count } from "./dom.js";
import { read, write, takeToken, pasteToken } from "./address.js";
import { ask, cluster } from "./ask.js";
import { words, picture } from "./cells.js";
import { Feed, Announcer } from "./feed.js";
import { FleetMap } from "./map.js";
import { NodeTable, filterOf, orderOf, differences, reasonOf } from "./table.js";
import { Rollouts } from "./rollouts.js";
import { NodePanel } from "./node.js";

const narrow = matchMedia("(max-width: 860px)");
const announcer = new Announcer($("said"));
const say = (text) => announcer.say(text);
let clusters = [], place = read("");
let cameFrom = "map"; // the id of the element that had the focus before the panel of a node

/** Goes to another place. The address changes, and with it the history unless this replaces its last entry. */
function go(changes, replace = false) {
  place = { ...place, ...changes };
  const hash = write(place);
  if (hash !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", hash);
  show();
}

const choose = (changes, replace) => go({ chosen: { ...place.chosen, ...changes } }, replace);
const look = (name) => {
  if (!$("node").contains(document.activeElement)) cameFrom = document.activeElement.id;
  go({ kind: "nodes", name });
};

const map = new FleetMap($("map"), look);
const table = new NodeTable(choose, look);
const panel = new NodePanel(() => go({ kind: "", name: "" }));
const rollouts = new Rollouts($("rollouts"), look, (name) => {
  if (!name) rollouts.close();
  go({ kind: name ? "rollouts" : "", name });
}, say, choose);

const feed = new Feed((changed, others, replaced) => {
  for (const [name, was] of replaced) {
    const n = feed.nodes.get(name);
    if (n && n.health !== was.health) announcer.health(n);
  }
  drawRest();
  if (changed.length || others) {
    map.update(feed.nodes, changed, others);
    if (panel.name && (changed.includes(panel.name) || others)) panel.changed();
  }
  table.draw(feed.nodes);
}, (state, more) => {
  if (state === "live") {
    $("gone")?.remove();
    return;
  }
  drawRest.drawn = null;
  drawRest(); // without the word that all is well
  link("bad", state === "refused" ? "no token" : "not connected");
  if (state === "refused") askToken(more);
  else redraw($("troubles"), h("p", { class: "banner bad", id: "gone" }, h("strong", {}, `The command that serves this page has not answered since ${clock(more)}.`), " Is kubectl evenkeel dashboard still running? Each run has a new address with another token."));
});

/** Shows what the address names. */
function show() {
  const at = clusters.find((c) => c.context === place.context) ?? (place.context ? null : clusters[0]);
  document.body.classList.toggle("elsewhere", !at);
  redraw($("elsewhere"), !at && h("p", { class: "banner waits" }, `This link is about the cluster of the context ${place.context}, which this page does not show. Start the dashboard with it: kubectl evenkeel dashboard --context ${place.context}`));
  const path = at ? `api/clusters/${at.id}/` : "";
  table.filter(place.chosen);
  map.filter(filterOf(place.chosen));
  if (cluster.path !== path) {
    cluster.path = path;
    rollouts.reset();
    panel.close();
    map.select("");
    redraw($("rollouts"), h("p", { class: "muted empty" }, "Loading …"));
    for (const id of ["summary-lines", "rights", "troubles", "notes", "failed"]) redraw($(id));
    $("failed").hidden = true;
    map.update(new Map(), [], true);
    table.draw(new Map());
    if (at) feed.start();
    else feed.stop();
  } else {
    table.draw();
  }
  drawClusters();
  rollouts.take(place.kind === "rollouts" ? place.name : "", place.chosen);
  const node = place.kind === "nodes" ? place.name : "", closed = panel.name;
  map.select(node);
  if (node) panel.open(node, (name) => feed.nodes.get(name));
  else if (closed) {
    panel.close();
    ($(cameFrom) ?? $("map")).focus({ preventScroll: true });
  }
  document.title = [node || (place.kind && place.name), at?.context, "evenkeel"].filter(Boolean).join(" · ");
}

const toneOf = (l) => ({ problem: "bad", notice: "waits" })[l.level] ?? (["RolloutsProgressing", "NodesOnTrial"].includes(l.reason) ? "busy" : "good");

/** Draws everything but the nodes. */
function drawRest() {
  const rest = feed.rest;
  if (!rest || drawRest.drawn === rest) return;
  drawRest.drawn = rest;
  const lines = rest.summary ?? [], urgent = lines.filter((l) => l.level !== "ok"), quiet = lines.filter((l) => l.level === "ok");
  const to = (l) => h("a", { class: "line", "data-tone": toneOf(l), title: l.next, href: write({ context: place.context, kind: "", name: "", chosen: {} }) + (l.filter.startsWith("?") ? l.filter : "/" + l.filter) }, l.words);
  redraw($("summary-lines"),
    urgent.length > 0 && h("p", { class: "urgent" }, urgent.map(to)),
    rest.ready && !urgent.length && !feed.since && h("p", { class: "urgent calm" }, "Nothing needs a person."),
    quiet.length > 0 && h("p", { class: "quiet" }, quiet.map(to)));
  redraw($("rights"), rest.rights?.words ?? "");
  rollouts.update(rest.rollouts, rest.ready);
  troubles(rest.trouble);
  redraw($("notes"), rest.notes.map((n) => h("p", { class: "banner waits" }, n)));
  drawFailed();
  drawFirst(rest.ready);
}

/** Draws the first step, where no node has an agent. A cluster without nodes has no map. */
function drawFirst(ready) {
  const nodes = [...feed.nodes.values()], begun = nodes.some((n) => words.health[n.health] !== "NoAgent");
  document.body.classList.toggle("no-nodes", ready && !nodes.length);
  redraw($("first"), ready && !begun && h("p", { class: "empty" }, h("strong", {}, nodes.length ? "No node has an agent yet. " : "There are no nodes with an agent yet. "), "Begin with one node: ", h("code", {}, "kubectl evenkeel install NODE"), ". Nothing changes on it until you assign a configuration."));
}

/** Draws the first failed nodes, for a small screen. */
function drawFailed() {
  const every = [...feed.nodes.values()].filter((n) => words.health[n.health] === "Failed"), all = every.length;
  const failed = every.sort(orderOf("name")).slice(0, 3), reasons = differences(failed);
  $("failed").hidden = failed.length === 0;
  redraw($("failed"), h("h2", { id: "failed-title" }, count(all, "failed node")),
    h("ul", {}, failed.map((n) => h("li", {}, picture(n.health, n.position), h("button", { id: "failed-node-" + n.name, type: "button", class: "link-button", onclick: () => look(n.name) }, n.name),
      h("span", { class: "muted why" }, [reasonOf(n), reasons.get(n.name)].filter(Boolean).join(": "))))),
    all > failed.length && h("p", {}, h("a", { href: write({ context: place.context, kind: "", name: "", chosen: { health: "Failed" } }) }, `Show all ${all.toLocaleString("en")}`)));
}

function troubles(list) {
  const away = list.filter((t) => t.away), refused = list.filter((t) => !t.away);
  const since = away.map((t) => t.since).sort()[0];
  redraw($("troubles"),
    away.length > 0 && h("p", { class: "banner bad" }, h("strong", {}, `The API server has not answered since ${clock(since)}. The page shows the state of that time.`), h("span", { class: "clamp" }, away[0].why)),
    refused.map((t) => h("p", { class: "banner bad" }, h("strong", {}, `${t.what} cannot be read since ${clock(t.since)}.`), " ", t.why)));
  document.body.classList.toggle("old", away.length > 0);
  link(away.length ? "bad" : "good", away.length ? "API server unreachable" : "live");
}

function link(state, text) {
  $("link").dataset.state = state;
  $("link-words").textContent = text;
}

/** Draws the clusters, each with the first line of its own summary. The shown one has it from its snapshot. */
function drawClusters() {
  const here = clusters.find((c) => cluster.path === `api/clusters/${c.id}/`);
  const text = clusters.length < 2 && here ? [here.context, here.server].filter(Boolean).join(" · ") : "";
  redraw($("cluster"), text);
  redraw($("clusters"), clusters.length > 1 && clusters.map((c) => {
    const of = drawClusters.summaries?.find((s) => s.id === c.id), first = of?.summary?.[0];
    return h("a", { class: "tab", href: write({ context: c.context, kind: "", name: "", chosen: {} }), "aria-current": c === here ? "page" : null, title: c.server },
      h("strong", {}, c.context), h("span", { class: "tab-words", "data-tone": first ? toneOf(first) : "good" }, first?.words ?? "no nodes"));
  }));
}

async function readSummaries() {
  for (;;) {
    try {
      if (!document.hidden) {
        drawClusters.summaries = await (await ask("api/summaries")).json();
        drawClusters();
      }
    } catch (e) {
      if (e.status === 401) return;
      console.debug(e);
    }
    await new Promise((done) => setTimeout(done, 3000));
  }
}

/** Asks for the token: a shared link has none. */
function askToken(why) {
  document.body.classList.add("locked");
  link("bad", "no token");
  $("token-why").textContent = why;
  $("token").hidden = false;
  $("token-text").focus();
}

$("token").addEventListener("submit", (e) => {
  e.preventDefault();
  if (pasteToken($("token-text").value)) location.reload();
  else $("token-error").textContent = "This contains no token. The address ends with # and 26 letters and digits.";
});

$("summary-lines").addEventListener("click", (e) => {
  if (narrow.matches && e.target.closest("a[href*='?']")) setTimeout(() => $("nodes-title").scrollIntoView());
});
$("failed").addEventListener("click", (e) => { if (e.target.closest("a")) setTimeout(() => $("nodes-title").scrollIntoView()); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawRest.drawn = null; table.repaint(); drawRest(); });

addEventListener("popstate", () => {
  if (takeToken()) { location.reload(); return; }
  place = read(location.hash);
  if (!place.context) place.context = clusters[0]?.context ?? "";
  show();
});

/** Starts when the command has answered. */
async function begin() {
  takeToken();
  let about;
  for (const since = Date.now(); !about;) {
    try {
      about = await (await ask("api/about")).json();
    } catch (e) {
      if (e.status === 401) return askToken(e.message);
      console.debug(e);
      link("bad", "not connected");
      redraw($("troubles"), h("p", { class: "banner bad", id: "gone" }, h("strong", {}, `The command that serves this page has not answered since ${clock(since)}.`), " Is kubectl evenkeel dashboard still running?"));
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
  Object.assign(words, about.words);
  clusters = about.clusters;
  place = read(location.hash);
  go({ context: place.context || clusters[0].context }, true);
  if (clusters.length > 1) readSummaries();
}
begin();
