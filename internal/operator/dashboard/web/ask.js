// Requests to the server.

import { parse } from "./dom.js";

const patience = 30000; // ms; the API server may take 20 s for an answer, and a request can wait for a connection

/** A signal that ends a read which is not answered: a part of the page would wait for it for ever. */
function late() {
  const end = new AbortController();
  setTimeout(() => end.abort(new Error(`kubectl evenkeel dashboard has not answered for ${patience / 1000} seconds`)), patience);
  return end.signal;
}

/** Sends a request to the server. The error has the message of the answer. A change, and what has its own signal, may take any time. */
export async function ask(path, options = {}) {
  const response = await fetch(path, {
    cache: "no-store",
    ...options,
    signal: options.signal ?? (options.method ? null : late()),
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

/** The cluster that the page shows. Its answers are below this path. */
export const cluster = { path: "" };

/** Reads an answer about the cluster. */
export const get = async (path) => (await ask(cluster.path + path)).json();
