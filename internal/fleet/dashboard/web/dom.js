// Helpers for the other modules: create and update elements, send requests to the server, format times and numbers.

/** Replaces characters that are invisible or reorder text by escape sequences, as internal/printable does for a terminal. */
function plain(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => {
    if (c === "\n" || c === "\t") return c;
    const code = c.codePointAt(0).toString(16);
    return code.length > 4 ? "\\U" + code.padStart(8, "0") : "\\u" + code.padStart(4, "0");
  });
}

/** Parses an answer of the server, and escapes all its strings with plain. */
export function parse(text) {
  return JSON.parse(text, (_, value) => (typeof value === "string" ? plain(value) : value));
}

/** Creates an element with attributes, a click handler and children. Strings become text, never HTML. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "onclick") element.onclick = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== ""));
  return element;
}

export const $ = (id) => document.getElementById(id);

/**
 * Replaces the content of an element, but changes only the nodes that differ. So the focus, the element under the mouse and
 * opened <details> stay while the fleet changes.
 */
export function redraw(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  const desired = h("div", {}, children);
  morphChildren(element, [...desired.childNodes]);
  if (focused && document.activeElement?.id !== focused) $(focused)?.focus({ preventScroll: true });
}

function morphChildren(parent, desired) {
  desired.forEach((to, i) => (parent.childNodes[i] ? morph(parent.childNodes[i], to) : parent.append(to)));
  while (parent.childNodes.length > desired.length) parent.lastChild.remove();
}

function morph(from, to) {
  const other = from.nodeName !== to.nodeName || from.id !== to.id || (from.nodeName === "CANVAS" && from.dataset.picture !== to.dataset.picture);
  if (other) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  const ours = (name) => name !== "style" && !(name === "open" && from.nodeName === "DETAILS");
  for (const { name } of [...from.attributes]) if (ours(name) && !to.hasAttribute(name)) from.removeAttribute(name);
  for (const { name, value } of to.attributes) if (ours(name) && from.getAttribute(name) !== value) from.setAttribute(name, value);
  if (from.style.cssText !== to.style.cssText) from.style.cssText = to.style.cssText;
  from.onclick = to.onclick;
  morphChildren(from, [...to.childNodes]);
}

// The token follows the # of the address. It moves to the session storage, so that it is in no history and on no screenshot,
// and a reloaded tab still has it.
const inAddress = location.hash.slice(1);
if (/^[A-Z2-7]{20,}$/.test(inAddress)) {
  sessionStorage.setItem("token", inAddress);
  history.replaceState(null, "", location.pathname);
}

/** Sends a request to the server. The error has the message of the answer. */
export async function ask(path, options = {}) {
  const response = await fetch(path, {
    cache: "no-store",
    ...options,
    headers: { Authorization: "Bearer " + (sessionStorage.getItem("token") ?? ""), ...options.headers },
  });
  response.json = async () => parse(await response.text());
  if (response.ok) return response;
  let words = response.statusText;
  try {
    words = (await response.json()).error ?? words;
  } catch { /* the answer is not JSON */ }
  const error = new Error(words);
  error.status = response.status;
  throw error;
}

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** Formats the time since then in a few characters. */
export function ago(time) {
  let s = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  if (s < 120) return s + "s";
  s = Math.round(s / 60);
  if (s < 120) return s + "m";
  s = Math.round(s / 60);
  return s < 48 ? s + "h" : Math.round(s / 24) + "d";
}

export const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
