// What a client holds of a queue, and how it is taken back: one message, all, or the consumer with them.

import { html, useState } from "./vendor/preact.js";
import { path, post, useAsked } from "./api.js";
import { act, open } from "./dialog.js";
import { Loaded } from "./elements.js";
import { count, counted, lasting } from "./format.js";
import { Table } from "./table.js";

const LISTED_MAX = 100;

const who = (holder) => holder.user_provided_name || holder.connection_name;
const what = (holder) => (holder.consumer_tag ? `consumer ${holder.consumer_tag}` : "basic.get");

/** The dialog that takes back what somebody holds, or cancels a consumer. */
export function takeBack(queue, holder) {
  return open(`Take back from ${who(holder)}`, (close) => html`<${TakeBack} queue=${queue} holder=${holder} close=${close} />`, { wide: true });
}

function TakeBack({ queue, holder, close }) {
  const [given, setGiven] = useState(0);
  const of = { connection_name: holder.connection_name, channel: holder.channel, consumer_tag: holder.consumer_tag };
  const where = `${path("queues", queue.vhost, queue.name)}/holders`;
  const held = useAsked(`${where}/messages?${new URLSearchParams(of)}`);
  const keeps = queue.type === "stream";
  const left = Math.max(0, holder.messages_unacknowledged - given);
  const told = (answer) => (answer.client_told ? "The client was told." : "The client was not told: it did not declare consumer_cancel_notify.");
  const one = async (message) => {
    if (await act(`Delivery ${message.delivery_tag} is back in ${queue.name}.`, () => post(`${where}/give_back`, { ...of, delivery_tags: [message.delivery_tag] }))) setGiven(given + 1);
    held.again();
  };
  const all = async () => {
    if (await act((answer) => `${counted(answer.given_back, "message")} of ${who(holder)} went back to ${queue.name}.`, () => post(`${where}/give_back`, of))) close(true);
  };
  const cancel = async (gives) => {
    const done = (answer) => `Cancelled ${what(holder)} of ${who(holder)}. ${told(answer)}${gives ? ` ${counted(answer.given_back, "message")} went back.` : ""}`;
    if (await act(done, () => post(`${where}/cancel`, { ...of, give_back: gives }))) close(true);
  };
  return html`
    <p class="ask"><bdi>${who(holder)}</bdi> (${what(holder)}, channel ${holder.channel}) holds ${counted(left, "message")}${left ? `, the oldest for ${lasting(holder.oldest_ms)}` : ""}.
    ${keeps ? "A stream keeps its messages whoever reads them: only the consumer can be cancelled." : `What is given back is delivered again, marked as redelivered${holder.consuming ? ", to this consumer too while it is not cancelled" : ""}. What the client does with it meanwhile is done twice; what it acknowledges later is ignored.`}</p>
    ${keeps || !left ? null : html`<${Loaded} of=${held} what="what it holds" rows=${3}>${(rows) => html`
      <div class="held"><${Table} rows=${rows} keyOf=${(each) => each.delivery_tag} empty="It holds nothing any more." columns=${[
        { title: "Delivery tag", number: true, show: (each) => count(each.delivery_tag) },
        { title: "Held for", number: true, show: (each) => lasting(each.held_ms) },
        { title: "", class: "acts", show: (each) => html`<button class="btn" aria-label=${`Give back delivery ${each.delivery_tag}`} onClick=${() => one(each)}>Give back</button>` },
      ]} /></div>
      ${rows.length >= LISTED_MAX ? html`<p class="sub">The oldest ${LISTED_MAX} are listed.</p>` : null}`}
    <//>`}
    <div class="row end">
      ${holder.consuming ? html`<button class="btn" onClick=${() => cancel(false)}>Cancel the consumer</button>` : null}
      ${keeps ? null : html`<button class="btn" onClick=${all}>Give all back</button>`}
      ${keeps || !holder.consuming ? null : html`<button class="btn danger" onClick=${() => cancel(true)}>Cancel and give all back</button>`}
    </div>`;
}
