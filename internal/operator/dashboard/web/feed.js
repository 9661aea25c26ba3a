// Reads the stream of one cluster, and keeps its newest snapshot: all nodes, and everything else of the same moment.

import { ask, cluster } from "./ask.js";
import { parse, plain, natural, breath } from "./dom.js";
import { words } from "./cells.js";

const slice = 400; // nodes that are taken in one task
const silence = 25000; // ms; the server sends at least every ten seconds: more means a dead connection

export class Feed {
  /**
   * @param changed is called after each snapshot with the names of the nodes that changed, whether nodes came, went or moved to
   * another zone, and the nodes that these have replaced
   * @param link is called with the state of the connection: live, or the error, and since when
   */
  constructor(changed, link) {
    this.changed = changed;
    this.link = link;
    this.nodes = new Map();
    this.rest = null;
    this.since = 0; // when the connection was lost
  }

  /** Starts to read the stream of the current cluster, instead of that of another. */
  start() {
    this.stop();
    this.nodes = new Map();
    this.rest = null;
    const reader = (this.reader = new AbortController());
    this.follow(reader.signal).catch(reportError);
  }

  stop() {
    this.reader?.abort();
  }

  /** Takes an event. The nodes of a large one are taken in several tasks, and shown together. */
  async take(m, signal) {
    const nodes = new Map(m.all ? [] : this.nodes); // others see the last snapshot until this one is complete
    const changed = [], replaced = new Map();
    let others = Boolean(m.all);
    const zones = m.zones?.map(plain) ?? [], owners = m.owners?.map(plain) ?? [], kubelets = m.kubelets?.map(plain) ?? [];
    for (const [i, t] of (m.nodes ?? []).entries()) {
      if (i % slice === slice - 1) {
        await breath();
        if (signal.aborted) return;
      }
      const name = plain(t[0]), was = this.nodes.get(name);
      const now = {
        name, key: was?.key ?? natural(name), rank: was?.rank ?? 0, zone: zones[t[1] ?? 0] ?? "", rollout: owners[t[2] ?? 0] ?? "", health: t[3] ?? 0, position: t[4] ?? 0,
        state: t[5] ?? 0, kubelet: kubelets[t[6] ?? 0] ?? "", problem: t[7] === 1, reason: plain(t[8] || t[9] || ""),
      };
      nodes.set(name, now);
      changed.push(name);
      if (was) replaced.set(name, was);
      if (!was || was.zone !== now.zone) others = true;
    }
    for (const name of m.gone ?? []) {
      nodes.delete(plain(name));
      others = true;
    }
    if (others) {
      await breath();
      if (signal.aborted) return;
      [...nodes.values()].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.name < b.name ? -1 : 1)).forEach((n, i) => { n.rank = i; });
      await breath();
      if (signal.aborted) return;
    }
    this.nodes = nodes;
    if (m.rest) this.rest = parse(JSON.stringify(m.rest));
    this.version = m.version;
    this.changed(changed, others, replaced);
  }

  /** Reads the stream until it ends. Each event is one line of JSON. */
  async listen(signal) {
    const response = await within(silence, ask(cluster.path + "feed?seen=" + this.version, { signal }));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await within(silence, reader.read());
      if (done) return;
      text += value;
      this.since = 0;
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
        const line = text.slice(0, end);
        if (!line.startsWith("data: ")) continue;
        await breath(); // several events can have arrived together
        await this.take(JSON.parse(line.slice(6)), signal).catch(reportError); // an error of the page is none of the connection
        if (signal.aborted) return;
      }
      this.link("live");
    }
  }

  /**
   * Reads the stream while the tab is visible: a browser allows six connections to a server for all tabs, and a hidden tab would
   * keep one. It resumes with the last version that it saw.
   */
  async follow(stopped) {
    this.version = 0;
    for (;;) {
      await visible();
      if (stopped.aborted) return;
      const stream = new AbortController();
      const end = () => { if (document.hidden || stopped.aborted) stream.abort(); };
      document.addEventListener("visibilitychange", end);
      stopped.addEventListener("abort", end);
      try {
        await this.listen(stream.signal);
      } catch (e) {
        if (stopped.aborted) return;
        if (stream.signal.aborted) continue;
        if (e.status === 401) {
          this.link("refused", e.message);
          return;
        }
        console.debug(e);
      } finally {
        document.removeEventListener("visibilitychange", end);
        stopped.removeEventListener("abort", end);
        stream.abort(); // else a hanging request keeps its connection
      }
      if (stopped.aborted) return;
      this.since ||= Date.now();
      this.version = 0; // another server may answer next
      this.link("lost", this.since);
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

const within = (ms, promise) => Promise.race([promise, new Promise((_, no) => setTimeout(() => no(new Error("no answer")), ms))]);

const visible = () => new Promise((done) => {
  const see = () => {
    if (document.hidden) return;
    document.removeEventListener("visibilitychange", see);
    done();
  };
  document.addEventListener("visibilitychange", see);
  see();
});

/** Collects what a screen reader announces: a fleet changes faster than a person listens. */
export class Announcer {
  constructor(host) {
    this.host = host;
    this.words = [];
    this.moved = new Map(); // node -> health
    this.due = Infinity;
  }

  say(text) {
    this.words.push(text);
    this.in(300);
  }

  /** Announces a node whose health changed, later if nobody is needed. */
  health(n) {
    this.moved.set(n.name, n.health);
    this.in(n.problem ? 4000 : 20000);
  }

  in(ms) {
    const at = Date.now() + ms;
    if (at >= this.due) return;
    clearTimeout(this.timer);
    this.due = at;
    this.timer = setTimeout(() => this.now(), ms);
  }

  now() {
    this.due = Infinity;
    const said = [...new Set(this.words)];
    words.health.forEach((health, i) => {
      const names = [...this.moved.keys()].filter((name) => this.moved.get(name) === i);
      if (names.length) said.push(`${names.length <= 3 ? names.join(", ") : names.length + " nodes"}: ${health}`);
    });
    this.words = [];
    this.moved = new Map();
    if (said.length) this.host.textContent = said.join(". ") + ".";
  }
}
