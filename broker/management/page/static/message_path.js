// The path of one message: published, routed, confirmed, delivered, acknowledged, as nodes see it.

import { html } from "./vendor/preact.js";
import { path, useAsked } from "./api.js";
import { open } from "./dialog.js";
import { Loaded } from "./elements.js";
import { clock, node as short } from "./format.js";
import { Table } from "./table.js";

const EVERY_MS = 1_000;
const DOTS = { published: "off", routed: "ok", unroutable: "bad", confirmed: "ok", delivered: "ok", ack: "ok", requeue: "warn", reject: "bad", dead_lettered: "warn", cycle: "bad" };

const DEATHS = { expired: "expired", rejected: "rejected", maxlen: "pushed out by the length limit", delivery_limit: "returned too often" };

/** The dialog that watches a message which was published with `follow`. */
export const followMessage = (id) => open("The path of the message", (close) => html`<${Path} id=${id} close=${close} />`, { wide: true });

function since(first, at) {
  const ms = (at - first) / 1000;
  return ms < 1000 ? `+${ms.toFixed(1)} ms` : `+${(ms / 1000).toFixed(1)} s`;
}

function words(step) {
  const who = step.connection ? ` ${step.connection} (${step.consumer_tag ? `consumer ${step.consumer_tag}, ` : ""}channel ${step.channel})` : "";
  switch (step.what) {
    case "published": return "taken by this node";
    case "routed": return `routed to ${step.queue}`;
    case "unroutable": return "no queue is bound for it: it is gone";
    case "confirmed": return "safe in every queue it was routed to";
    case "delivered": return `delivered from ${step.queue} to${who}${step.redelivered ? ", again" : ""}${step.no_ack ? "; no acknowledgement is needed" : ""}`;
    case "ack": return `acknowledged by${who}`;
    case "requeue": return `back in ${step.queue}, from${who}`;
    case "reject": return `rejected by${who}`;
    case "dead_lettered": return `${DEATHS[step.reason] ?? `died (${step.reason})`} in ${step.queue}: dead-lettered`;
    case "cycle": return "it would go round in circles: dropped";
    default: return step.what;
  }
}

function waits(steps) {
  const last = steps.at(-1)?.what;
  const goesOn = last === "routed" && steps.some((each) => each.what === "dead_lettered");
  if (last === "confirmed" || last === "requeue" || goesOn) return "It waits in its queue for a consumer.";
  if (last === "delivered" && !steps.at(-1).no_ack) return "It waits for its acknowledgement.";
  return "";
}

function Path({ id, close }) {
  const live = useAsked(`/message-paths${path(id)}`, EVERY_MS);
  return html`
    <p class="sub">message_id <bdi class="mono">${id}</bdi>. Nodes look for it for a minute after it was published; what ends in a queue without a dead-letter exchange is not seen.</p>
    <${Loaded} of=${live} what="its path" rows=${3}>${({ steps, missing_nodes: missing }) => html`
      <div aria-live="polite">
        <${Table} rows=${steps.map((each, index) => ({ ...each, index }))} keyOf=${(each) => each.index} empty="Nothing is known of it." columns=${[
          { title: "When", show: (each) => html`<span class="sub" title=${clock(each.at_us / 1000)}>${since(steps[0].at_us, each.at_us)}</span>` },
          { title: "What", show: (each) => html`<span class=${`dot ${DOTS[each.what] ?? "off"}`} aria-hidden="true"></span> <bdi>${words(each)}</bdi>` },
          { title: "Node", secondary: true, show: (each) => html`<span class="sub">${short(each.node)}</span>` },
        ]} />
        <p><b>${waits(steps)}</b></p>
        ${missing.length ? html`<p class="sub">${missing.map(short).join(", ")} may have seen more: no answer.</p>` : null}
      </div>`}
    <//>
    <div class="row end"><button class="btn p" onClick=${() => close()}>Done</button></div>`;
}
