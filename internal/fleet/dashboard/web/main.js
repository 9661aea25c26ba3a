// The dashboard page: receives the stream of nodes and rollouts from internal/fleet/dashboard, keeps the current state, and
// lets the other modules draw the map, the rollouts and the node panel.

import { h, $, redraw, ask, clock, count, parse } from "./dom.js";
import { states, picture } from "./states.js";
import { FleetMap, urgent } from "./map.js";
import { Rollouts } from "./rollouts.js";
import { NodePanel } from "./node.js";

const nodes = new Map();
const selected = new Set(); // states to show; empty: all
let onlyDown = false, part = "", rows = 50;

const panel = new NodePanel(() => {
  map.select("");
  ($(cameFrom) ?? $("map")).focus();
});
let cameFrom = "map"; // the id of the element that had the focus
const map = new FleetMap($("map"), look);
const rollouts = new Rollouts($("rollouts"), look, announce);

function look(name) {
  if (!$("node").contains(document.activeElement)) cameFrom = document.activeElement.id;
  map.select(name);
  panel.open(name, true);
}

// Announcements for screen readers. They are collected, since a fleet changes faster than a person listens.
let announcements = [], moved = new Map(), timer = 0, due = Infinity; // moved: node -> state
function announce(words) {
  announcements.push(words);
  announceIn(300);
}
function announceIn(ms) {
  const at = Date.now() + ms;
  if (at >= due) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(announceNow, ms);
}
function announceNow() {
  due = Infinity;
  const words = [...new Set(announcements)];
  states.forEach((s, state) => {
    const names = [...moved.keys()].filter((name) => moved.get(name) === state);
    if (names.length) words.push(names.length <= 3 ? `${names.join(", ")}: ${s.name}` : `${count(names.length, "node")}: ${s.name}`);
  });
  announcements = [];
  moved = new Map();
  if (words.length) $("said").textContent = words.join(". ") + ".";
}

function take(m) {
  const changed = [];
  let others = false;
  if (m.all) {
    nodes.clear();
    others = true;
  }
  for (const [name, zone, owner, state, down, why] of m.nodes ?? []) {
    const was = nodes.get(name);
    const now = { name, zone: m.zones[zone], rollout: m.owners[owner], state, down: down === 1, why: why ?? "" };
    nodes.set(name, now);
    changed.push(name);
    if (!was || was.zone !== now.zone) others = true;
    if (was && was.state !== state && (states[state].bad || states[was.state].bad || state === 0)) {
      moved.set(name, state);
      announceIn(states[state].bad ? 4000 : 20000);
    }
  }
  for (const name of m.gone ?? []) {
    nodes.delete(name);
    others = true;
  }
  if (m.rest) {
    rollouts.update(m.rest.rollouts, m.rest.ready);
    troubles(m.rest.trouble);
    redraw($("notes"), m.rest.notes.map((n) => h("p", { class: "banner waits" }, n)));
  }
  if (changed.length || others) {
    map.update(nodes, changed, others);
    legend();
    table();
    if (panel.name && (changed.includes(panel.name) || m.gone?.includes(panel.name))) panel.changed();
  }
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

function link(state, words) {
  $("link").dataset.state = state;
  $("link-words").textContent = words;
}

const shown = (n) => (!selected.size || selected.has(n.state)) && (!onlyDown || n.down) && n.name.includes(part);

/** Draws the number of nodes in each state, as buttons that show only nodes in these states. */
function legend() {
  const numbers = states.map(() => 0);
  let down = 0;
  for (const n of nodes.values()) {
    numbers[n.state]++;
    if (n.down) down++;
  }
  const key = numbers.join() + down + [...selected].join() + onlyDown;
  if (legend.drawn !== key) {
    legend.drawn = key;
    redraw($("legend"),
      states.map((s, i) => (numbers[i] > 0 || selected.has(i)) && chip("state-" + s.id, picture(i), s.name, numbers[i], s.means, selected.has(i), () => {
        selected.has(i) ? selected.delete(i) : selected.add(i);
        refilter();
      })),
      (down > 0 || onlyDown) && chip("state-down", picture(0, true), "Not Ready", down, "the Node is not Ready, or does not exist", onlyDown, () => { onlyDown = !onlyDown; refilter(); }));
  }
  const zones = new Set([...nodes.values()].map((n) => n.zone)).size;
  $("fleet-words").textContent = `${count(nodes.size, "node")} in ${count(zones, "zone")}`;
}

function chip(id, sign, name, n, means, pressed, onclick) {
  return h("button", { id, type: "button", class: "chip", "aria-pressed": String(pressed), title: means, onclick }, sign, name, h("span", { class: "n" }, n.toLocaleString("en")));
}

function refilter() {
  rows = 50;
  map.filter(shown);
  legend();
  table();
}

/** Draws the nodes as a table, most urgent first. It shows some of thousands; a search by name finds the others. */
function table() {
  const all = [...nodes.values()].filter(shown).sort(urgent);
  const list = all.slice(0, rows);
  const key = JSON.stringify(list);
  if (table.drawn !== key) {
    table.drawn = key;
    redraw($("nodes").tBodies[0], list.map((n) => h("tr", { "data-node": n.name },
      h("th", { scope: "row" }, h("button", { id: "row-" + n.name, type: "button", class: "link-button", onclick: () => look(n.name, "table") }, n.name)),
      h("td", { class: "state" }, picture(n.state, n.down), h("span", {}, states[n.state].name + (n.down ? ", not Ready" : ""))),
      h("td", {}, n.zone), h("td", {}, n.rollout), h("td", { class: "why" }, n.why))));
  }
  $("nodes-words").textContent = all.length > list.length ? `${list.length} of ${all.length.toLocaleString("en")}, most urgent first.` : count(all.length, "node");
  $("more").hidden = all.length <= list.length;
}

$("more").addEventListener("click", () => { rows += 200; table(); });
$("search").addEventListener("input", () => { part = $("search").value.trim(); refilter(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { legend.drawn = table.drawn = ""; legend(); table(); });

/** Reads the stream until it ends. Each event is one line of JSON. */
async function listen(seen, signal) {
  const response = await ask("api/feed?seen=" + seen.version, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    // The server sends at least every ten seconds: silence means a dead connection.
    const { value, done } = await within(25000, reader.read());
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const line = text.slice(0, end);
      if (!line.startsWith("data: ")) continue;
      const m = parse(line.slice(6));
      take(m);
      seen.version = m.version;
      arrived();
    }
    arrived();
  }
}

const within = (ms, promise) => Promise.race([promise, new Promise((_, no) => setTimeout(() => no(new Error("no answer")), ms))]);

const gone = { since: 0 };
function arrived() {
  if (!gone.since) return;
  gone.since = 0;
  $("gone")?.remove();
}

const visible = () => new Promise((done) => {
  const see = () => {
    if (document.hidden) return;
    document.removeEventListener("visibilitychange", see);
    done();
  };
  document.addEventListener("visibilitychange", see);
  see();
});

/**
 * Reads the stream while the tab is visible: a browser allows six connections to a server for all tabs, and a hidden tab would
 * keep one. It resumes with the last version that it saw.
 */
async function live() {
  const seen = { version: 0 };
  for (;;) {
    await visible();
    const stream = new AbortController();
    const hide = () => { if (document.hidden) stream.abort(); };
    document.addEventListener("visibilitychange", hide);
    try {
      await listen(seen, stream.signal);
    } catch (e) {
      if (stream.signal.aborted) continue;
      if (e.status === 401) {
        link("bad", "no token");
        redraw($("troubles"), h("p", { class: "banner bad" }, e.message));
        return;
      }
      console.debug(e);
    } finally {
      document.removeEventListener("visibilitychange", hide);
      stream.abort(); // else a hanging request keeps its connection
    }
    gone.since ||= Date.now();
    seen.version = 0; // another server may answer next
    link("bad", "not connected");
    redraw($("troubles"), h("p", { class: "banner bad", id: "gone" }, h("strong", {}, `The command that serves this page has not answered since ${clock(gone.since)}.`), " Is kubectl evenkeel dashboard still running? Each run has a new address with another token."));
    await new Promise((done) => setTimeout(done, 1000));
  }
}

ask("api/about").then((r) => r.json()).then((about) => {
  $("cluster").textContent = [about.context, about.cluster].filter(Boolean).join(" · ");
  document.title = `evenkeel ${about.context}`;
}).catch(() => {});
live();
