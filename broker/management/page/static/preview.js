// What a change would touch, told before one makes it: a policy, the stop of a node.

import { html, useEffect, useState } from "./vendor/preact.js";
import { ask, path, useAsked } from "./api.js";
import { open } from "./dialog.js";
import { Loaded, Scroll } from "./elements.js";
import { count, counted, node as short } from "./format.js";
import { href } from "./names.js";

const TYPING_MS = 300;
const SHOWN_MAX = 8;

const shown = (value) => (value === null ? "none" : typeof value === "string" ? value : JSON.stringify(value));

const changeOf = (each) => Object.entries(each.changes).map(([key, [before, after]]) => `${key} ${shown(before)} → ${shown(after)}`).join(", ") || `policy ${shown(each.policy)} → ${shown(each.policy_after)}`;

/** What a policy would touch, as the node says it; asked again while one types. */
export function PolicyTouches({ where, method = "PUT", body }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const key = JSON.stringify([where, method, body ?? null]);
  useEffect(() => {
    let over = false;
    const timer = setTimeout(async () => {
      try {
        const answer = await ask(method, `${where}?dry_run=true`, body);
        if (!over) {
          setFound(answer);
          setError("");
        }
      } catch (problem) {
        if (!over) {
          setFound(null);
          setError(problem.message);
        }
      }
    }, TYPING_MS);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [key]);
  return html`<span class="touches" aria-live="polite">${found ? html`<${Touches} found=${found} />` : error}</span>`;
}

export function Touches({ found }) {
  if (!found.queues_changed && !found.exchanges_changed) return "It changes nothing now.";
  const more = found.queues_changed - Math.min(SHOWN_MAX, found.queues.length);
  return html`
    <b>It touches ${[found.queues_changed ? counted(found.queues_changed, "queue") : "", found.exchanges_changed ? counted(found.exchanges_changed, "exchange") : ""].filter(Boolean).join(" and ")}.</b>
    ${found.queues.slice(0, SHOWN_MAX).map((each) => html`<span class="line" key=${each.name}>${each.added ? "new: " : ""}<bdi>${each.name}</bdi>: ${changeOf(each)}</span>`)}
    ${more > 0 ? html`<span class="line">and ${counted(more, "more queue")}</span>` : null}
    ${found.exchanges.slice(0, SHOWN_MAX).map((each) => html`<span class="line" key=${`e ${each.name}`}>${each.added ? "new " : ""}exchange <bdi>${each.name}</bdi>: policy ${shown(each.policy)} → ${shown(each.policy_after)}</span>`)}`;
}

const STOP = [
  ["stuck", "away until it is back: no quorum, or no other synchronised copy"],
  ["away", "away until it is back: on this node alone"],
  ["leaders_moved", "led by another node then"],
  ["copies_fewer", "with one copy less, and served as before"],
];

/** The dialog with what the stop of a node would touch. */
export function previewStop(name) {
  return open(`What a stop of ${short(name)} touches`, (close) => html`<${StopTouches} name=${name} close=${close} />`, { wide: true });
}

function StopTouches({ name, close }) {
  const found = useAsked(`/preview/stop${path(name)}`, 3000);
  return html`
    <${Loaded} of=${found} what="the preview" rows=${4}>${(value) => html`
      <p class="ask"><b>${value.safe ? "A stop interrupts no queue." : "A stop interrupts something."}</b> ${value.clients ? `${counted(value.clients, "client")} must connect to another node.` : "No client is connected to it."}</p>
      ${value.reasons.map((each) => html`<p class="problem" key=${each.reason}>${each.reason}</p>`)}
      ${STOP.filter(([key]) => value[key].count).map(([key, words]) => html`
        <details key=${key} open=${key === "stuck" || key === "away"}><summary>${counted(value[key].count, "queue")} ${words}</summary>
          <${Scroll} class="held" label=${words}><ul class="json">${value[key].queues.map((each) => html`<li key=${`${each.vhost} ${each.name}`}><a href=${href("queues", each.vhost, each.name)} onClick=${() => close()}><bdi>${each.name}</bdi></a> <span class="sub">${each.vhost}, ${each.type}</span></li>`)}
          ${value[key].count > value[key].queues.length ? html`<li>and ${count(value[key].count - value[key].queues.length)} more</li>` : null}</ul><//></details>`)}
      ${STOP.every(([key]) => !value[key].count) ? html`<p class="empty">It has no queue.</p>` : null}`}
    <//>
    <div class="row end"><button class="btn p" onClick=${() => close()}>Close</button></div>`;
}
