// Requests to the server.

import { parse } from "./dom.js";

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

/** The cluster that the page shows. Its answers are below this path. */
export const cluster = { path: "" };

/** Reads an answer about the cluster. */
export const get = async (path) => (await ask(cluster.path + path)).json();
