// How a node looks: its health is the color, and its position in the rollout is the shape, since color alone is not accessible.

import { spaced } from "./dom.js";

/** The words of the numbers in the stream, from the server. */
export const words = { health: [""], position: [""], state: [""] };

const healthMeans = {
  Failed: "the node refused its configuration, rolled back, needs a person, or failed in its rollout",
  NotReady: "the Node is not Ready",
  Unknown: "the agent is silent, or does not know",
  NoAgent: "no agent has ever reported",
  OnTrial: "the kubelet runs a configuration on trial",
  Healthy: "the kubelet runs the configuration that it is to run",
  OptedOut: "the agent does not take configurations from the API",
};

const positionMeans = {
  "": "no rollout owns the node, or you may not see its position",
  Failed: "the node failed in the rollout",
  Blocked: "the node's pods prevent a restart of its kubelet",
  InFlight: "the node was assigned the revision, and has not passed its soak time",
  Waiting: "its turn has not come",
  Updated: "the node runs the revision",
  Skipped: "the rollout does not change the node now",
};

export const healthName = (i) => spaced(words.health[i] || "Unknown");
export const positionName = (i) => spaced(words.position[i] || "No rollout");
export const healthMeaning = (i) => healthMeans[words.health[i]] ?? "";
export const positionMeaning = (i) => positionMeans[words.position[i]] ?? "";

/** The position of a node in words, with the rollout's finer state where that says more. */
export function place(n) {
  if (!n.position) return "";
  const position = positionName(n.position), state = words.state[n.state] ?? "";
  return !state || state === words.position[n.position] || state === "Pending" ? position : `${position} (${state.toLowerCase()})`;
}

/** The standing of a node in words. */
export const standing = (n) => [healthName(n.health), place(n)].filter(Boolean).join(", ");

export const healthColor = (i) => "--h-" + (words.health[i] || "Unknown").toLowerCase();

/** Draws one cell into a square of this size, in device pixels. */
export function drawCell(g, position, health, x, y, size, color, ink) {
  const line = Math.max(1, size / 7);
  const box = (inset) => {
    g.beginPath();
    g.roundRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset, Math.max(0, size / 5 - inset));
  };
  g.fillStyle = g.strokeStyle = color;
  g.lineWidth = line;
  g.lineCap = "round";
  const solid = () => { box(0); g.fill(); g.strokeStyle = g.fillStyle = ink; };
  const hollow = () => { box(line / 2); g.stroke(); };
  const strokes = (...lines) => {
    g.beginPath();
    for (const [x1, y1, x2, y2] of lines) {
      g.moveTo(x + x1 * size, y + y1 * size);
      g.lineTo(x + x2 * size, y + y2 * size);
    }
    g.stroke();
  };
  switch (words.position[position]) {
    case "Updated": solid(); break;
    case "Waiting": hollow(); break;
    case "InFlight": hollow(); g.fillRect(x + line / 2, y + size / 2, size - line, size / 2 - line / 2); break;
    case "Failed": solid(); strokes([0.34, 0.34, 0.66, 0.66], [0.66, 0.34, 0.34, 0.66]); break;
    case "Blocked": solid(); strokes([0.36, 0.3, 0.36, 0.7], [0.64, 0.3, 0.64, 0.7]); break;
    case "Skipped": hollow(); strokes([0.3, 0.5, 0.7, 0.5]); break;
    default: g.beginPath(); g.arc(x + size / 2, y + size / 2, size * 0.44, 0, 7); g.fill();
  }
  if (words.health[health] === "NotReady") { // a corner is cut out
    g.globalCompositeOperation = "destination-out";
    g.beginPath();
    g.moveTo(x + size, y);
    g.lineTo(x + size * 0.42, y);
    g.lineTo(x + size, y + size * 0.58);
    g.fill();
    g.globalCompositeOperation = "source-over";
  }
}

/** The colors of the page, until they change. */
const colors = new Map();
export function color(name) {
  if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colors.get(name);
}
for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) matchMedia(query).addEventListener("change", () => colors.clear());

const pictures = new Map(); // of cells, drawn once

/** A small picture of a cell, for the legend and the table. Without a health it has the color of the text. */
export function picture(health, position, size = 12) {
  const canvas = document.createElement("canvas");
  const scale = Math.max(1, devicePixelRatio);
  canvas.width = canvas.height = Math.round(size * scale);
  canvas.className = "cell";
  canvas.setAttribute("aria-hidden", "true");
  const fill = color(health === null ? "--muted" : healthColor(health));
  const key = [position, health, fill, canvas.width].join();
  canvas.dataset.picture = key;
  if (!pictures.has(key)) {
    const once = new OffscreenCanvas(canvas.width, canvas.height);
    drawCell(once.getContext("2d"), position, health, 0, 0, canvas.width, fill, color("--h-ink"));
    pictures.set(key, once);
  }
  canvas.getContext("2d").drawImage(pictures.get(key), 0, 0);
  return canvas;
}
