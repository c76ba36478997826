// The event streams of one browser: what its tabs watch together, over few connections.
// It runs in a shared worker, or in the tab itself where there is none.

import { apply } from "./deltas.js";

const PATHS_MAX = 32; // of a stream, as the node has it
const ADDRESS_MAX = 6_000; // characters; a node takes lines of 8,192 bytes
const STREAMS_MAX = 3; // a browser has six connections to a host, and the page needs some
const ARRANGE_MS = 5; // what is asked for within that goes into one stream
const LINGER_MS = 10_000; // a path that nobody watches any more: who goes back finds it
const SILENT_MS = 7_000; // a node says every two seconds that it is there
const AGAIN_MS = [300, 1_000, 2_000, 4_000];

/** Events of a stream: calls `tell(kind, data)` for each, until it ends. */
async function read(body, tell, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [first, second] = event.split("\n", 2);
      tell(first.slice("event: ".length), JSON.parse(second.slice("data: ".length)));
    }
  }
}

class Stream {
  constructor(hub, paths) {
    this.hub = hub;
    this.paths = paths;
    this.failures = 0;
    this.stopped = new AbortController();
    this.run();
  }

  stop() {
    this.stopped.abort();
    this.connection?.abort();
    this.wake?.();
  }

  /** Come back at once instead of in a while. */
  hurry() {
    this.failures = 0;
    this.wake?.();
  }

  async run() {
    while (!this.stopped.signal.aborted) {
      let error = { status: 0, message: "the node does not answer" };
      try {
        error = (await this.connect()) ?? error;
      } catch {
        // the connection broke, or was never there
      }
      if (this.stopped.signal.aborted) return;
      if (this.failures || error.status) for (const path of this.paths) this.hub.failed(path, error);
      const wait = AGAIN_MS[Math.min(this.failures, AGAIN_MS.length - 1)];
      this.failures += 1;
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, wait * (0.75 + Math.random() / 2));
      });
      this.wake = null;
    }
  }

  /** Read one connection to its end; returns why it ended, where the node said so. */
  async connect() {
    const connection = (this.connection = new AbortController());
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => connection.abort(), SILENT_MS);
    };
    heard();
    try {
      const address = new URL(this.hub.address);
      for (const path of this.paths) address.searchParams.append("watch", path);
      const headers = { Accept: "text/event-stream" };
      const answer = await fetch(address, { headers, cache: "no-store", credentials: "same-origin", signal: connection.signal });
      if (!answer.ok) {
        const said = await answer.json().catch(() => ({}));
        return { status: answer.status, message: said.reason ?? `the node answered ${answer.status}` };
      }
      let ended = null;
      await read(
        answer.body,
        (kind, data) => {
          this.failures = 0;
          if (kind === "end") ended = { status: data.status, message: data.reason };
          else if (kind === "checked") data.watches.forEach((at, number) => this.hub.checked(this.paths[number], at));
          else this.hub.told(this.paths[data.watch], kind, data);
        },
        heard,
      );
      return ended;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** What is watched. `address` is that of the event stream. */
export class Hub {
  constructor(address) {
    this.address = address;
    this.known = new Map(); // path -> {listeners, value, error, at, leftAt}
    this.streams = [];
    this.arranging = 0;
  }

  /** Have `listener({kind, ...})` told of a path, from what is known of it on. */
  add(path, listener) {
    let entry = this.known.get(path);
    if (!entry) this.known.set(path, (entry = { listeners: new Set(), value: undefined, error: null, at: 0, leftAt: 0 }));
    entry.listeners.add(listener);
    if (entry.value !== undefined) listener({ kind: "value", path, value: entry.value, at: entry.at });
    if (entry.error) listener({ kind: "error", path, error: entry.error });
    this.arrange();
  }

  remove(path, listener) {
    const entry = this.known.get(path);
    if (!entry?.listeners.delete(listener) || entry.listeners.size) return;
    entry.leftAt = Date.now();
    setTimeout(() => this.arrange(), LINGER_MS + ARRANGE_MS);
  }

  /** Ask again at once: somebody has logged in. */
  hurry() {
    for (const stream of this.streams) stream.hurry();
  }

  arrange() {
    if (!this.arranging) this.arranging = setTimeout(() => this.arrangeNow(), ARRANGE_MS);
  }

  arrangeNow() {
    this.arranging = 0;
    const now = Date.now();
    const isWanted = (path) => {
      const entry = this.known.get(path);
      return entry.listeners.size > 0 || now - entry.leftAt < LINGER_MS;
    };
    this.streams = this.streams.filter((stream) => {
      if (stream.paths.filter(isWanted).length * 2 >= stream.paths.length) return true;
      stream.stop(); // mostly for what nobody watches any more
      return false;
    });
    const served = new Set(this.streams.flatMap((stream) => stream.paths));
    for (const path of [...this.known.keys()]) if (!served.has(path) && !isWanted(path)) this.known.delete(path);
    let chunks = this.chunks([...this.known.keys()].filter((path) => !served.has(path)));
    if (chunks.length && this.streams.length + chunks.length > STREAMS_MAX) {
      for (const stream of this.streams) stream.stop();
      this.streams = [];
      chunks = this.chunks([...this.known.keys()]);
    }
    for (const paths of chunks) this.streams.push(new Stream(this, paths));
  }

  chunks(paths) {
    const found = [];
    let length = ADDRESS_MAX;
    for (const path of paths) {
      const more = encodeURIComponent(path).length + "&watch=".length;
      if (length + more > ADDRESS_MAX || found.at(-1).length >= PATHS_MAX) {
        found.push([]);
        length = this.address.length;
      }
      found.at(-1).push(path);
      length += more;
    }
    return found;
  }

  told(path, kind, data) {
    const entry = this.known.get(path);
    if (!entry) return;
    entry.at = data.at;
    if (kind === "error") {
      this.failed(path, { status: data.error.status, message: data.error.reason });
      return;
    }
    entry.error = null;
    if (kind === "value") {
      entry.value = data.value;
      this.tell(entry, { kind, path, value: data.value, at: data.at });
    } else {
      const change = { patch: data.patch, rows: data.rows, in_rows: data.in_rows };
      entry.value = apply(entry.value, change);
      this.tell(entry, { kind, path, change, at: data.at });
    }
  }

  failed(path, error) {
    const entry = this.known.get(path);
    if (!entry || (entry.error?.status === error.status && entry.error.message === error.message)) return;
    entry.error = error;
    this.tell(entry, { kind: "error", path, error });
  }

  checked(path, at) {
    const entry = this.known.get(path);
    if (!entry || entry.at === at) return;
    entry.at = at;
    this.tell(entry, { kind: "checked", path, at });
  }

  tell(entry, message) {
    for (const listener of entry.listeners) listener(message);
  }
}
