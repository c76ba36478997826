// A shared worker: one set of event streams for all tabs of a browser.

import { Hub } from "./live-hub.js";

const GONE_MS = 150_000; // tabs in the background speak once a minute

let hub = null;

self.onconnect = ({ ports: [port] }) => {
  const watched = new Set();
  const listener = (message) => port.postMessage(message);
  let heard = Date.now();

  const forget = () => {
    for (const path of watched) hub.remove(path, listener);
    watched.clear();
  };
  setInterval(() => {
    if (Date.now() - heard > GONE_MS) forget();
  }, GONE_MS / 5);

  port.onmessage = ({ data }) => {
    heard = Date.now();
    hub ??= new Hub(data.address);
    if (data.kind === "add" && !watched.has(data.path)) {
      watched.add(data.path);
      hub.add(data.path, listener);
    } else if (data.kind === "remove" && watched.delete(data.path)) {
      hub.remove(data.path, listener);
    } else if (data.kind === "hurry") {
      hub.hurry();
    } else if (data.kind === "leave") {
      forget();
    } else if (data.kind === "here" && watched.size !== data.watched) {
      port.postMessage({ kind: "lost" }); // the tab was frozen for long, and was forgotten
    }
  };
};
