// Closing connections, and the states of connections and channels.

import { html } from "./vendor/preact.js";
import { ask, path } from "./api.js";
import { act, notify, open } from "./dialog.js";
import { State } from "./elements.js";
import { Form } from "./form.js";

const LEVELS = { running: "ok", idle: "ok", flow: "warn", blocking: "warn", blocked: "bad", closing: "warn", closed: "off", starting: "warn" };

/** The state of a connection or channel in a word. */
export const ClientState = ({ of }) => html`<${State} level=${LEVELS[of.state] ?? "off"}>${of.state ?? "unknown"}<//>`;

/** The form that closes a connection; its reason reaches the client. */
export function closeConnection({ name, user_provided_name: given, channels }, then) {
  const who = given || name;
  return open(`Close the connection of ${who}?`, (close) => html`
    <p class="ask">${channels === undefined ? "All its channels" : channels === 1 ? "Its channel" : `Its ${channels} channels`} will be closed. Messages that it holds go back to their queues. The client may connect again.</p>
    <${Form} fields=${[{ name: "reason", label: "Reason", value: "Closed via management plugin", hint: "The client gets it." }]} label="Close the connection" danger cancel=${() => close()} submit=${async ({ reason }) => {
      await ask("DELETE", path("connections", name), undefined, { headers: { "X-Reason": encodeHeader(reason) } });
      close();
      notify(`Closed the connection of ${who}.`);
      then?.();
    }} />`);
}

/** A header has Latin-1 only; what it can't hold is replaced. */
const encodeHeader = (text) => text.replace(/[^\x20-\x7e]/g, "?");

/** Closes all connections of a user. */
export const closeUser = (user) => act(`Closed the connections of ${user}.`, () => ask("DELETE", path("connections", "username", user), undefined, { headers: { "X-Reason": "Closed via management plugin" } }));
