// The management API: requests, their errors, the session, and values that stay fresh.

import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { refresh, watch } from "./live.js";

const TIMEOUT_MS = 30_000;
const STALE_MS = 5_000;

/** What the API refused, or that it could not be asked; `message` is the broker's own text. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** A path of encoded names: path("queues", "/", "a b") is "/queues/%2F/a%20b". */
export function path(...names) {
  return names.map((name) => `/${encodeURIComponent(name)}`).join("");
}

/** The address of a path of the API, below whatever prefix a proxy has put before the page. */
export function address(where) {
  return new URL(`api${where}`, document.baseURI);
}

const expired = new Set();

/** Call `listener` when a request finds that nobody is logged in any more; returns how to stop. */
export function whenExpired(listener) {
  expired.add(listener);
  return () => expired.delete(listener);
}

function reason(status, text) {
  try {
    const found = JSON.parse(text);
    const said = found.reason ?? found.error ?? found;
    if (Array.isArray(found.faults) && found.faults.length > 1) return found.faults.map((each) => each.reason ?? each).join("\n");
    return typeof said === "string" ? said : JSON.stringify(said);
  } catch {
    return text.trim() || `the node answered ${status}`;
  }
}

async function send(method, where, options) {
  let answer;
  try {
    answer = await fetch(address(where), { method, signal: AbortSignal.timeout(TIMEOUT_MS), credentials: "same-origin", cache: "no-store", ...options });
    const text = await answer.text();
    if (answer.ok) return text;
    throw new ApiError(answer.status, reason(answer.status, text));
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(0, error.name === "TimeoutError" ? `no answer within ${TIMEOUT_MS / 1000} s` : "the node does not answer");
  }
}

/** Ask the API; returns what it answered, null for nothing. Throws ApiError, status 0 where no node answered. */
export async function ask(method, where, body, { headers = {}, raw = false } = {}) {
  try {
    const text = await send(method, where, body === undefined ? { headers } : { headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) });
    if (raw) return text;
    return text ? JSON.parse(text) : null;
  } catch (error) {
    if (error.status === 401) for (const listener of expired) listener();
    throw error;
  }
}

export const get = (where) => ask("GET", where);
export const put = (where, body = {}) => ask("PUT", where, body);
export const post = (where, body = {}) => ask("POST", where, body);
export const remove = (where, body) => ask("DELETE", where, body);

let skew = Infinity; // ms that the browser's clock is ahead of the nodes'

/** A node's time as the browser's clock has it: what came fastest tells how far they are apart. */
function here(at) {
  skew = Math.min(skew, Date.now() - at);
  return at + skew;
}

/** What GET `where` answers, kept fresh: `{value, error, at, stale}`; null watches nothing. */
export function useLive(where) {
  const [state, setState] = useState({ where, value: undefined, error: null, at: 0 });
  // In the layout: what is asked for does not wait until the page without it has been painted.
  useLayoutEffect(() => {
    if (where === null) return undefined;
    return watch(where, ({ value, error, at }) => {
      if (error?.status === 401) for (const listener of expired) listener();
      setState((before) => ({
        where,
        value: value ?? (before.where === where ? before.value : undefined),
        error: error ?? null,
        at: at ? here(at) : before.where === where ? before.at : 0,
      }));
    });
  }, [where]);
  const now = useNow();
  const current = state.where === where ? state : { where, value: undefined, error: null, at: 0 };
  return { ...current, stale: Boolean(current.at) && now - current.at > STALE_MS };
}

/**
 * What GET `where` answers, asked again every `everyMs` (0: once); for what is large and changes slowly.
 *
 * Everybody asks at the same moments of the clock, so that the node answers all who look with one look.
 */
export function useAsked(where, everyMs = 0) {
  const [state, setState] = useState({ where: null, value: undefined, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (where === null) return undefined;
    let timer = 0;
    let over = false;
    const once = async () => {
      try {
        const value = await get(where);
        if (!over) setState({ where, value, error: null });
      } catch (error) {
        if (!over) setState((before) => ({ where, value: before.where === where ? before.value : undefined, error }));
      }
      if (!over && everyMs) timer = setTimeout(once, everyMs - (Date.now() % everyMs));
    };
    once();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [where, everyMs, turn]);
  const current = state.where === where ? state : { where, value: undefined, error: null };
  return { ...current, again: () => setTurn((number) => number + 1) };
}

/** The time in ms, told once a second to whoever shows an age. */
export function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** The value of the render before this one. */
export function useBefore(value) {
  const kept = useRef(undefined);
  useEffect(() => {
    kept.current = value;
  });
  return kept.current;
}

let user = null;

/** Who is logged in, `{name, tags}`, or null. */
export const whoami = () => user;

/** Find out who is logged in; null for nobody. Throws ApiError where the node does not say. */
export async function recognise() {
  try {
    user = await get("/whoami");
  } catch (error) {
    if (error.status !== 401) throw error;
    user = null;
  }
  return user;
}

/** True if nobody is logged in any more; who was stays known. Throws ApiError where the node does not say. */
export async function hasEnded() {
  try {
    await get("/whoami");
    return false;
  } catch (error) {
    if (error.status !== 401) throw error;
    return true;
  }
}

const IMPLIED = {
  management: ["management", "policymaker", "monitoring", "administrator"],
  policymaker: ["policymaker", "administrator"],
  monitoring: ["monitoring", "administrator"],
  browser: ["browser", "administrator"],
  administrator: ["administrator"],
};

/** True if the user has a tag, or one that implies it. */
export function may(tag) {
  return IMPLIED[tag].some((each) => user?.tags?.includes(each));
}

/** Begin a session: the node sets a cookie that no script can read. Throws ApiError with the broker's text. */
export async function login(username, password) {
  await send("POST", "/login", { body: new URLSearchParams({ username, password }) });
  refresh();
}

/** End the session. */
export async function logout() {
  await send("POST", "/logout", {});
  user = null;
}
