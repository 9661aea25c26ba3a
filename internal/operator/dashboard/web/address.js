// What the page shows is named by the fragment of its address, which can be shared: #/CONTEXT/nodes/NAME?health=Failed. The token
// never stays there.

/** The keys of filters, and of what else a person has chosen. */
export const keys = ["health", "position", "zone", "rollout", "reason", "kubelet", "name", "sort", "log"];

/** Parses a fragment: the context of the cluster, an opened node or rollout, and choices. */
export function read(hash) {
  const place = { context: "", kind: "", name: "", chosen: {} };
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const decode = (s) => { try { return decodeURIComponent(s); } catch { return s; } };
  const [empty, context = "", kind = "", name = ""] = path.split("/").map(decode);
  if (empty === "") {
    place.context = context;
    if (["nodes", "rollouts"].includes(kind) && name) [place.kind, place.name] = [kind, name];
  }
  for (const [key, value] of new URLSearchParams(query)) if (keys.includes(key) && value) place.chosen[key] = value;
  return place;
}

/** Returns the fragment of a place. */
export function write(place) {
  const query = new URLSearchParams();
  for (const key of keys) if (place.chosen[key]) query.set(key, place.chosen[key]);
  const path = [place.context, ...(place.kind ? [place.kind, place.name] : [])].map(encodeURIComponent).join("/");
  return "#/" + path + (query.size ? "?" + query : "");
}

const isToken = (text) => /^[A-Z2-7]{20,}$/.test(text);

/**
 * Moves the token from the address to the session storage, so that it is in no history and on no screenshot, and a reloaded tab
 * still has it. Reports whether there was one.
 */
export function takeToken() {
  const token = location.hash.slice(1);
  if (!isToken(token)) return false;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
  return true;
}

/** Keeps the token of an address, or a bare token, that a person has pasted. Reports whether there was one. */
export function pasteToken(text) {
  const token = text.trim().split("#").pop();
  if (isToken(token)) sessionStorage.setItem("token", token);
  return isToken(token);
}
