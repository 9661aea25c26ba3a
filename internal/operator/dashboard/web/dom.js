// Helpers for the other modules: create and update elements, and format times and numbers.

/** Replaces characters that are invisible or reorder text by escape sequences, as internal/printable does for a terminal. */
export function plain(text) {
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

const listeners = ["onclick", "onchange", "oninput"];

/** Creates an element with attributes, event handlers and children. Strings become text, never HTML. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (listeners.includes(name)) element[name] = value;
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
  desired.forEach((to, i) => {
    // An element that has moved is moved, so that what is open in it stays open.
    if (to.id && parent.childNodes[i]?.id !== to.id) {
      const moved = [...parent.children].find((c) => c.id === to.id);
      if (moved) parent.insertBefore(moved, parent.childNodes[i]);
    }
    if (parent.childNodes[i]) morph(parent.childNodes[i], to);
    else parent.append(to);
  });
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
  for (const name of listeners) from[name] = to[name];
  morphChildren(from, [...to.childNodes]);
  if (from.nodeName === "SELECT" && from.value !== to.dataset.value) from.value = to.dataset.value;
}

/** A command in a monospaced box, with a button that copies it. */
export function command(text, inline = false) {
  return h("span", { class: inline ? "command inline" : "command" }, h("code", {}, text), h("button", {
    type: "button", class: "copy", "aria-label": "Copy: " + text, title: "Copy", onclick: (e) => copy(e.currentTarget, text),
  }, "Copy"));
}

async function copy(button, text) {
  let words = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling); // for Ctrl-C
    words = "Selected";
  }
  button.textContent = words;
  $("said").textContent = words + ".";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

/**
 * Splits a text of the server into words and these commands, which can be copied. Nodes write parts of some texts, so everything else
 * that looks like a command, or continues one, stays text.
 */
export function withCommands(text, commands = []) {
  if (!commands.length) return [text];
  const any = [...commands].sort((a, b) => b.length - a.length).map((c) => c.replace(/[^\w\s]/g, "\\$&")).join("|");
  return text.split(new RegExp(`(?<![^\\s(])(${any})(?=$|[,;:)\\n]|\\.(?:\\s|$)| \\()`)).map((part, i) => (i % 2 ? command(part, true) : part));
}

/** A choice among values, as a labelled list. */
export function choice(id, label, values, value, onchange) {
  const select = h("select", { id, "data-value": value, onchange: () => onchange($(id).value) }, values.map(([v, words]) => h("option", { value: v }, words)));
  select.value = value;
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** Formats the time since then in a few characters. */
export function ago(time) {
  let s = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  if (s < 120) return s + "s";
  s = Math.round(s / 60);
  if (s < 120) return s + "m";
  s = Math.round(s / 60);
  return s < 48 ? s + "h" : Math.round(s / 24) + "d";
}

/** A number with separators: 12,345. */
export const number = (n) => n.toLocaleString("en");

export const count = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;

/** Leaves out the UIDs in a text, which are as long as the rest. */
export const short = (text) => text.replace(/ \(UID: [^)]*\)/g, "");

/** OnTrial becomes "On trial". */
export const spaced = (word) => word.replace(/(?<=[a-z])[A-Z]/g, (c) => " " + c.toLowerCase());

/** A text that sorts naturally: node-2 before node-10. */
export const natural = (text) => text.toLowerCase().replace(/\d+/g, (digits) => digits.replace(/^0+(?=\d)/, "").padStart(12, "0"));

/** Lets the browser draw and answer keys before a long task continues. */
export const breath = () => new Promise((done) => setTimeout(done));
