// Values of the API that stay fresh: `watch("/overview", ({value, error, at}) => ...)`.
//
// All tabs of a browser share their event streams (live-worker.js). A connection that breaks comes
// back by itself. `at` says when the node last found the value to be so: its age is how old it is.

import { apply } from "./deltas.js";
import { Hub } from "./live-hub.js";

const HERE_MS = 20_000;

const states = new Map(); // path -> {value, error, at, listeners}
let post = null;

/** Through which messages reach the hub: a shared worker's port, or a hub of this tab's own. */
function connected() {
  const address = new URL("api/live", document.baseURI).href;
  if (typeof SharedWorker === "function") {
    try {
      const worker = new SharedWorker(new URL("./live-worker.js", import.meta.url), { type: "module", name: address });
      let fallback = null;
      worker.onerror = () => {
        // it could not be loaded: this tab goes on alone
        if (fallback) return;
        fallback = alone(address);
        for (const path of states.keys()) fallback({ kind: "add", path });
      };
      worker.port.onmessage = ({ data }) => receive(data);
      const send = (message) => (fallback ? fallback(message) : worker.port.postMessage({ address, ...message }));
      addEventListener("pagehide", () => send({ kind: "leave" }));
      addEventListener("pageshow", (event) => {
        if (event.persisted) addAll();
      });
      setInterval(() => send({ kind: "here", watched: states.size }), HERE_MS);
      return send;
    } catch {
      // a browser without module workers
    }
  }
  return alone(address);
}

function alone(address) {
  const hub = new Hub(address);
  return ({ kind, path }) => {
    if (kind === "add") hub.add(path, receive);
    else if (kind === "remove") hub.remove(path, receive);
    else if (kind === "hurry") hub.hurry();
  };
}

function addAll() {
  for (const path of states.keys()) post({ kind: "add", path });
}

function receive(message) {
  if (message.kind === "lost") {
    addAll();
    return;
  }
  const state = states.get(message.path);
  if (!state) return;
  if (message.kind === "value") Object.assign(state, { value: message.value, error: null });
  else if (message.kind === "change") Object.assign(state, { value: apply(state.value, message.change), error: null });
  else if (message.kind === "error") state.error = message.error;
  if (message.at) state.at = message.at;
  for (const listener of [...state.listeners]) tell(listener, state);
}

function tell(listener, { value, error, at }) {
  listener({ value, error, at });
}

/**
 * Have `onValue({value, error, at})` called with what GET `path` answers, now and whenever that
 * changes; returns how to stop. `error` is null or `{status, message}`, status 0 where no node
 * answers; the last value stays. `path` has its query, with or without "/api" in front.
 */
export function watch(path, onValue) {
  const whole = path.startsWith("/api/") ? path : `/api${path}`;
  post ??= connected();
  const listener = (told) => onValue(told);
  let state = states.get(whole);
  if (!state) {
    states.set(whole, (state = { value: undefined, error: null, at: 0, listeners: new Set([listener]) }));
    post({ kind: "add", path: whole }); // a hub of this tab's own answers at once what it knows
  } else {
    const known = state;
    known.listeners.add(listener);
    if (known.value !== undefined || known.error) queueMicrotask(() => known.listeners.has(listener) && tell(listener, known));
  }
  return () => {
    if (!state.listeners.delete(listener) || state.listeners.size || states.get(whole) !== state) return;
    states.delete(whole);
    post({ kind: "remove", path: whole });
  };
}

/** Ask for everything at once instead of at the next try: call it after a login. */
export function refresh() {
  post?.({ kind: "hurry" });
}
