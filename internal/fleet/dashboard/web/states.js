// The states of a node on the map: name, explanation, color, and a symbol, since color alone is not accessible. The index of a
// state is its number in the stream.

export const states = [
  { id: "fine", name: "Fine", means: "the node runs its target configuration and is healthy" },
  { id: "pending", name: "Pending", means: "its turn has not come" },
  { id: "assigned", name: "Assigned", means: "its agent has not applied the configuration yet", flight: true },
  { id: "trial", name: "In trial", means: "the configuration runs on trial", flight: true },
  { id: "soaking", name: "Soaking", means: "the trial was passed; the soak time is not over", flight: true },
  { id: "failed", name: "Failed", means: "the configuration failed on the node, or changes protected fields", bad: true },
  { id: "stale", name: "Stale", means: "its agent does not answer", bad: true },
  { id: "passed-over", name: "Skipped", means: "a person assigned its configuration, or the node takes it from elsewhere" },
  { id: "no-agent", name: "No agent", means: "no agent has reported from the node" },
  { id: "unknown", name: "Unknown", means: "its agent cannot determine the state", bad: true },
  { id: "blocked", name: "Blocked", means: "its pods prevent the configuration", bad: true },
  { id: "draining", name: "Draining", means: "its pods are evicted before it gets the configuration", flight: true },
];

/** The states, most urgent first. */
const urgency = [5, 6, 10, 9, 11, 3, 2, 4, 8, 1, 7, 0];
export const rank = states.map((_, i) => urgency.indexOf(i));

/** Draws one cell of a state into a square of this size, in device pixels. */
export function drawCell(g, state, down, x, y, size, color, ink) {
  const id = states[state].id;
  const line = Math.max(1, size / 8);
  const box = (inset) => {
    g.beginPath();
    g.roundRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset, Math.max(0, size / 5 - inset));
  };
  g.lineWidth = line;
  g.lineCap = "round";
  g.fillStyle = g.strokeStyle = color;
  const hollow = () => { box(line / 2); g.stroke(); };
  const solid = () => { box(0); g.fill(); g.strokeStyle = g.fillStyle = ink; };
  const strokes = (...lines) => {
    g.beginPath();
    for (const [x1, y1, x2, y2] of lines) {
      g.moveTo(x + x1 * size, y + y1 * size);
      g.lineTo(x + x2 * size, y + y2 * size);
    }
    g.stroke();
  };
  switch (id) {
    case "fine": solid(); break;
    case "pending": hollow(); break;
    case "assigned": hollow(); g.fillRect(x + line, y + size / 2, size - 2 * line, size / 2 - line); break;
    case "trial": solid(); g.beginPath(); g.arc(x + size / 2, y + size / 2, size * 0.22, 0, 7); g.fill(); break;
    case "soaking": solid(); strokes([0.25, 0.36, 0.75, 0.36], [0.25, 0.64, 0.75, 0.64]); break;
    case "failed": solid(); g.lineWidth = line * 1.3; strokes([0.28, 0.28, 0.72, 0.72], [0.72, 0.28, 0.28, 0.72]); break;
    case "stale": solid(); g.lineWidth = line * 1.3; strokes([0.5, 0.22, 0.5, 0.56], [0.5, 0.78, 0.5, 0.78]); break;
    case "blocked": hollow(); strokes([0.38, 0.3, 0.38, 0.7], [0.62, 0.3, 0.62, 0.7]); break;
    case "draining": hollow(); strokes([0.5, 0.26, 0.5, 0.72], [0.32, 0.54, 0.5, 0.72], [0.68, 0.54, 0.5, 0.72]); break;
    case "passed-over": hollow(); strokes([0.28, 0.5, 0.72, 0.5]); break;
    case "no-agent": g.beginPath(); g.arc(x + size / 2, y + size / 2, size * 0.16, 0, 7); g.fill(); break;
    default: hollow(); strokes([0.5, 0.26, 0.5, 0.56], [0.5, 0.76, 0.5, 0.76]);
  }
  if (down) { // a corner is cut out
    g.globalCompositeOperation = "destination-out";
    g.beginPath();
    g.moveTo(x + size, y);
    g.lineTo(x + size * 0.42, y);
    g.lineTo(x + size, y + size * 0.58);
    g.fill();
    g.globalCompositeOperation = "source-over";
  }
}

/** A small picture of a state, for the legend and the table. */
export function picture(state, down = false, size = 12) {
  const canvas = document.createElement("canvas");
  const scale = Math.max(1, devicePixelRatio);
  canvas.width = canvas.height = Math.round(size * scale);
  canvas.className = "cell";
  canvas.setAttribute("aria-hidden", "true");
  const style = getComputedStyle(document.documentElement);
  const color = style.getPropertyValue("--s-" + states[state].id).trim();
  canvas.dataset.picture = [state, down, color].join();
  drawCell(canvas.getContext("2d"), state, down, 0, 0, canvas.width, color, style.getPropertyValue("--s-ink").trim());
  return canvas;
}
