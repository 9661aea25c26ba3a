// What the other modules draw elements and ask the server with.

/** Makes an element: attributes by name, listeners by "on…", children as they are, texts as text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== ""));
  return element;
}

export const $ = (id) => document.getElementById(id);

/** Draws the content of an element anew; the focus stays where it was, by its id. */
export function redraw(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  const open = new Set([...element.querySelectorAll("details[open][id]")].map((d) => d.id));
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const id of open) {
    const details = $(id);
    if (details) details.open = true;
  }
  if (focused) $(focused)?.focus({ preventScroll: true });
}

// The token is behind the # of the address. It is taken out of there, so that it is in no history and on no screenshot; a
// tab that is loaded again still has it.
const inAddress = location.hash.slice(1);
if (/^[A-Z2-7]{20,}$/.test(inAddress)) {
  sessionStorage.setItem("token", inAddress);
  history.replaceState(null, "", location.pathname);
}

/** Asks the server. The error has the words of the answer. */
export async function ask(path, options = {}) {
  const response = await fetch(path, {
    cache: "no-store",
    ...options,
    headers: { Authorization: "Bearer " + (sessionStorage.getItem("token") ?? ""), ...options.headers },
  });
  if (response.ok) return response;
  let words = response.statusText;
  try {
    words = (await response.json()).error ?? words;
  } catch { /* no answer of ours */ }
  const error = new Error(words);
  error.status = response.status;
  throw error;
}

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** How long ago, in a few characters. */
export function ago(time) {
  let s = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  if (s < 120) return s + "s";
  s = Math.round(s / 60);
  if (s < 120) return s + "m";
  s = Math.round(s / 60);
  return s < 48 ? s + "h" : Math.round(s / 24) + "d";
}

export const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
