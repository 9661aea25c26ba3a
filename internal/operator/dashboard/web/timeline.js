// The time axis of a rollout: updated and failed nodes over time, steps and pauses as bands, and what the plan estimates ahead of now.

import { h, svg, clock, count } from "./dom.js";

const height = 152, top = 24, bottom = 24;
const minute = 60000, hour = 60 * minute, day = 24 * hour;
const intervals = [10000, 30000, minute, 2 * minute, 5 * minute, 15 * minute, 30 * minute, hour, 2 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day, 30 * day];

/** Formats a time, with the date if it is not the only day that is shown. */
const moment = (t, long) => (long ? new Date(t).toLocaleDateString([], { day: "numeric", month: "short" }) + " " : "") + clock(t).slice(0, 5);

/** Draws the time axis in this width, in CSS pixels. */
export function timeline(name, line, width) {
  if (!line.start || !line.points?.length) return h("p", { class: "muted" }, line.note || "Nothing has happened yet.");
  const at = (t) => new Date(t).getTime();
  const now = at(line.now), begin = Math.min(at(line.start), at(line.points[0].t));
  const elapsed = Math.max((line.end ? at(line.end) : now) - begin, 30000);
  const shown = line.end ? Math.min(now, at(line.end) + elapsed * 0.2) : now; // the time since a distant end is not of interest
  // A distant end would leave no room for what has happened.
  const ahead = line.estimate?.points?.length ? at(line.estimate.end ?? line.estimate.points.at(-1).t) : shown;
  const end = Math.max(shown + elapsed * 0.04, Math.min(ahead + elapsed * 0.04, now + elapsed * 2));
  const most = Math.max(1, line.total, ...line.points.map((p) => p.updated + p.failed));
  const left = 8 + 8 * String(most).length, right = 8;
  const x = (t) => left + ((Math.min(Math.max(at(t), begin), end) - begin) / (end - begin)) * (width - left - right);
  const y = (n) => top + (1 - n / most) * (height - top - bottom);
  const steps = (points, key, to) => points.map((p, i) => (i ? `H${x(p.t).toFixed(1)}V` : `M${x(p.t).toFixed(1)},`) + y(p[key]).toFixed(1)).join("") + `H${x(to).toFixed(1)}`;
  const last = line.points.at(-1), points = line.points;
  const until = line.end ? Math.max(at(line.end), at(last.t)) : now; // nothing changes after the end
  const updated = steps(points, "updated", until);
  const failed = points.some((p) => p.failed > 0) && steps(points, "failed", until);
  const estimate = line.estimate && aheadOf(line.estimate.points, { t: now, updated: last.updated }, end);
  const long = end - begin > day;
  const spacing = intervals.find((i) => (end - begin) / i <= width / 72) ?? 365 * day;
  const zone = new Date(begin).getTimezoneOffset() * minute;
  const ticks = [];
  for (let t = Math.ceil((begin - zone) / spacing) * spacing + zone; t < end; t += spacing) ticks.push(t);
  const words = summary(line, last);
  const seconds = spacing < minute;
  return [
    svg("svg", { class: "timeline", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Nodes over time of ${name}: ${words}` },
      line.bands.map((b) => band(b, x, now, begin)),
      [0, most].map((n) => [
        svg("line", { class: "grid", x1: left, x2: width - right, y1: y(n), y2: y(n) }),
        svg("text", { class: "tick", x: left - 4, y: y(n) + 4, "text-anchor": "end" }, String(n)),
      ]),
      ticks.map((t) => [
        svg("line", { class: "grid", x1: x(t), x2: x(t), y1: height - bottom, y2: height - bottom + 4 }),
        x(t) > left + 8 && x(t) < width - right - 16 && svg("text", { class: "tick", x: x(t), y: height - 6, "text-anchor": "middle" }, seconds ? clock(t) : moment(t, long)),
      ]),
      svg("path", { class: "area", d: `${updated}V${y(0)}H${x(points[0].t).toFixed(1)}Z` }),
      svg("path", { class: "updated", d: updated }),
      failed && svg("path", { class: "failed", d: failed }),
      estimate && svg("path", { class: "estimate", d: "M" + estimate.map((p) => `${x(p.t).toFixed(1)},${y(p.updated).toFixed(1)}`).join("L") }),
      now <= end && svg("line", { class: "now", x1: x(now), x2: x(now), y1: top - 6, y2: height - bottom }),
      svg("circle", { class: "dot-updated", cx: x(until), cy: y(last.updated), r: 3 }),
      failed && svg("circle", { class: "dot-failed", cx: x(until), cy: y(last.failed), r: 3 })),
    h("ul", { class: "key", "aria-label": "Lines of the drawing" },
      h("li", {}, h("span", { class: "stroke updated", "aria-hidden": "true" }), `${count(last.updated, "node")} updated`),
      failed && h("li", {}, h("span", { class: "stroke failed", "aria-hidden": "true" }), `${last.failed.toLocaleString("en")} failed`),
      line.estimate && h("li", {}, h("span", { class: "stroke estimate", "aria-hidden": "true" }), line.estimate.end ? `estimated end ${moment(line.estimate.end, at(line.estimate.end) - now > day)}` : "estimate"),
      now <= end && h("li", {}, h("span", { class: "stroke now", "aria-hidden": "true" }), `now, ${clock(line.now).slice(0, 5)}`)),
    (line.estimate?.note || line.note) && h("p", { class: "muted small" }, [line.note, line.estimate?.note].filter(Boolean).join(" ")),
    h("details", { id: "times-" + name }, h("summary", {}, "As a table"), table(name, line)),
  ];
}

const summary = (line, last) => `${last.updated} of ${count(line.total, "node")} updated, ${last.failed} failed` + (line.estimate?.end ? `, estimated end ${clock(line.estimate.end)}` : "");

function band(b, x, now, begin) {
  if (b.to && new Date(b.to) < begin) return null;
  const from = x(b.from), to = x(b.to ?? now), width = Math.max(2, to - from);
  const room = Math.floor((width - 8) / 6.6);
  const label = b.label.length <= room ? b.label : room >= 5 ? b.label.slice(0, room - 1) + "…" : "";
  return svg("g", { class: "band " + b.kind },
    svg("title", {}, `${b.label}, ${clock(b.from)} to ${b.to ? clock(b.to) : "now"}`),
    svg("rect", { x: from, y: 4, width, height: height - bottom - 4 }),
    label && svg("text", { x: from + 4, y: 17 }, label));
}

/** The estimate from now on, up to the end of the drawing. */
function aheadOf(points, first, end) {
  const out = [first];
  for (const p of points) {
    const before = out.at(-1), t = new Date(p.t).getTime();
    if (t <= before.t) continue;
    if (t <= end) {
      out.push({ t, updated: p.updated });
      continue;
    }
    out.push({ t: end, updated: before.updated + ((p.updated - before.updated) * (end - before.t)) / (t - before.t) });
    break;
  }
  return out;
}

/** The same as the drawing, in at most some thirty rows. */
function table(name, line) {
  const every = Math.ceil(line.points.length / 20);
  const rows = line.points.filter((_, i) => i % every === 0 || i === line.points.length - 1).map((p) => [p.t, p.updated, p.failed, ""]);
  for (const b of line.bands) rows.push([b.from, "", "", `${b.kind} begins: ${b.label}`]);
  for (const p of line.estimate?.points?.slice(-5) ?? []) rows.push([p.t, p.updated, "", "estimate"]);
  rows.sort((a, b) => new Date(a[0]) - new Date(b[0]));
  return h("div", { class: "scroll" }, h("table", { class: "compact", "aria-label": "Nodes over time of " + name },
    h("thead", {}, h("tr", {}, ["Time", "Updated", "Failed", "What"].map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, rows.map(([t, updated, failed, what]) => h("tr", {}, h("th", { scope: "row" }, clock(t)), h("td", { class: "n" }, String(updated)), h("td", { class: "n" }, String(failed)), h("td", {}, what))))));
}
