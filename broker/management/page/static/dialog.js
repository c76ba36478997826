// Dialogs and notices: forms in a native <dialog>, questions before something is lost, what came of an act.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";

const SHOWN_MS = 6_000;

let shown = [];
let notices = [];
let number = 0;
const listeners = new Set();

function tell() {
  for (const listener of listeners) listener();
}

/** Open a dialog; `content` is called with the function that closes it. Resolves with what it was closed with. */
export function open(title, content, { wide = false } = {}) {
  return new Promise((resolve) => {
    const id = (number += 1);
    const close = (result) => {
      shown = shown.filter((each) => each.id !== id);
      tell();
      resolve(result);
    };
    shown = [...shown, { id, title, content, wide, close }];
    tell();
  });
}

/** Ask before something is lost: what, how much, and a button that names the act. True if it shall be done. */
export async function confirm(title, text, label) {
  const done = await open(title, (close) => html`
    <p class="ask">${text}</p>
    <div class="row end">
      <button class="btn" autofocus onClick=${() => close(false)}>Cancel</button>
      <button class="btn danger" onClick=${() => close(true)}>${label}</button>
    </div>`);
  return done === true;
}

/** Show for some seconds what was done, or what failed. */
export function notify(text, { failed = false } = {}) {
  const id = (number += 1);
  notices = [...notices.slice(-3), { id, text, failed }];
  tell();
  setTimeout(() => drop(id), failed ? 3 * SHOWN_MS : SHOWN_MS);
}

function drop(id) {
  notices = notices.filter((each) => each.id !== id);
  tell();
}

/** Do something and say what came of it; true if it succeeded. */
export async function act(done, attempt) {
  try {
    const answer = await attempt();
    notify(typeof done === "function" ? done(answer) : done);
    return true;
  } catch (error) {
    notify(error.message, { failed: true });
    return false;
  }
}

function Dialog({ title, content, wide, close }) {
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
    return () => dialog.close();
  }, []);
  return html`
    <dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${(event) => {
      if (event.target !== element.current) return;
      event.preventDefault();
      close(undefined);
    }}>
      <div class="row"><h2 class="grow">${title}</h2><button class="btn quiet" aria-label="Close" onClick=${() => close(undefined)}>✕</button></div>
      ${content(close)}
    </dialog>`;
}

/** Where dialogs and notices appear; once, in the shell. */
export function Dialogs() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((turn) => turn + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return html`
    ${shown.map((each) => html`<${Dialog} key=${each.id} ...${each} />`)}
    <div class="notices" role="status">
      ${notices.map((each) => html`
        <div class=${`notice ${each.failed ? "failed" : ""}`} key=${each.id} role=${each.failed ? "alert" : null}>
          <span class="grow">${each.failed ? html`<b>Failed: </b>` : null}${each.text}</span>
          <button class="btn quiet" aria-label="Dismiss" onClick=${() => drop(each.id)}>✕</button>
        </div>`)}
    </div>`;
}

/** True while a dialog is open. */
export const isOpen = () => shown.length > 0;

/** Close every dialog, for a user who is no longer logged in. */
export function closeAll() {
  for (const each of shown) each.close(undefined);
}
