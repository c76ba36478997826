// Channels: the list, and one with its consumers and what it publishes and takes.

import { html } from "../vendor/preact.js";
import { path, useLive } from "../api.js";
import { Chart, rates, usePast } from "../charts.js";
import { ClientState, closeConnection } from "../connection_acts.js";
import { Badge, Card, Facts, Figure, Loaded, Rate } from "../elements.js";
import { clock, count, perSecond } from "../format.js";
import { ChannelLink, ConnectionLink, ExchangeLink, NodeLink, QueueLink, useVhost } from "../names.js";
import { Listing, Table } from "../table.js";

/** How a channel works: confirms, transactions. */
function Mode({ of }) {
  return html`<span class="badges">${of.confirm ? html`<${Badge} text="C" title="publisher confirms" />` : null}${of.transactional ? html`<${Badge} text="T" title="transactional" />` : null}</span>`;
}

const prefetch = (each) => (each.prefetch_count ? count(each.prefetch_count) : each.global_prefetch_count ? `${count(each.global_prefetch_count)} shared` : "no limit");

const COLUMNS = [
  { title: "Channel", class: "name", sort: "name", show: (each) => html`<${ChannelLink} name=${each.name} />` },
  { title: "Virtual host", secondary: true, sort: "vhost", show: (each) => html`<bdi>${each.vhost}</bdi>` },
  { title: "User", secondary: true, sort: "user", show: (each) => html`<bdi>${each.user}</bdi>` },
  { title: "Mode", secondary: true, show: (each) => html`<${Mode} of=${each} />` },
  { title: "State", sort: "state", show: (each) => html`<${ClientState} of=${each} />` },
  { title: "Unconfirmed", number: true, secondary: true, sort: "messages_unconfirmed", show: (each) => count(each.messages_unconfirmed) },
  { title: "Unacked", number: true, sort: "messages_unacknowledged", show: (each) => count(each.messages_unacknowledged) },
  { title: "Prefetch", number: true, secondary: true, sort: "prefetch_count", show: prefetch },
  { title: "Publish", number: true, secondary: true, sort: "message_stats.publish_details.rate", show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "publish")} />` },
  { title: "Deliver", number: true, secondary: true, sort: "message_stats.deliver_get_details.rate", show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "deliver_get")} />` },
  { title: "Acks", number: true, secondary: true, sort: "message_stats.ack_details.rate", show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "ack")} />` },
];
const KEYS = "name,vhost,user,confirm,transactional,state,messages_unconfirmed,messages_unacknowledged,prefetch_count,global_prefetch_count,message_stats.publish_details.rate,message_stats.deliver_get_details.rate,message_stats.ack_details.rate";

export function Channels() {
  const [vhost, choice] = useVhost();
  return html`
    <div class="row"><h1>Channels</h1></div>
    <${Listing} id="channels" path=${vhost === "" ? "/channels" : `/vhosts${path(vhost)}/channels`} columns=${COLUMNS} keys=${KEYS} keyOf=${(each) => each.name}
      what="the channels" order=${["messages_unacknowledged", true]} empty="No channel is open." aside=${choice} />`;
}

export function Channel({ name }) {
  const where = path("channels", name);
  const live = useLive(where);
  const past = usePast(where);
  return html`
    <${Loaded} of=${live} what=${`channel ${name}`} rows=${8} missing=${html`<b>There is no channel “<bdi>${name}</bdi>”.</b> <div class="sub">It was closed, or its connection was.</div><p><a href="#/channels">All channels</a></p>`}>${(value) => html`
      <div class="row title"><h1><bdi>${name}</bdi></h1><span class="sub">vhost <bdi>${value.vhost}</bdi></span><${Mode} of=${value} /><${ClientState} of=${value} /><span class="grow"></span>
        <button class="btn" title="A channel can't be closed alone" onClick=${() => closeConnection({ name: value.connection_details.name })}>Close its connection…</button></div>
      <div class="grid4">
        <${Figure} title="Unacknowledged" value=${count(value.messages_unacknowledged)} sub=${`prefetch ${prefetch(value)}`} />
        <${Figure} title="Unconfirmed" value=${count(value.messages_unconfirmed)} sub=${value.confirm ? "publisher confirms are on" : "publisher confirms are off"} />
        <${Figure} title="In → out" value=${`${count(perSecond(value.message_stats, "publish") ?? 0)} → ${count(perSecond(value.message_stats, "deliver_get") ?? 0)}`} unit="/s" sub=${html`<${Rate} value=${perSecond(value.message_stats, "ack") ?? 0} /> acknowledged`} />
        <${Figure} title="Consumers" value=${count(value.consumer_count)} sub=${value.messages_uncommitted || value.acks_uncommitted ? `${value.messages_uncommitted} messages, ${value.acks_uncommitted} acks not committed` : undefined} />
      </div>
      <${Chart} title="Message rates" kind="rate" choice=${past.choice} step=${past.step} age=${past.age} series=${[
        { label: "publish", points: rates(past.past?.message_stats?.publish_details) },
        { label: "deliver", points: rates(past.past?.message_stats?.deliver_get_details) },
        { label: "acknowledge", points: rates(past.past?.message_stats?.ack_details) },
        { label: "confirm", points: rates(past.past?.message_stats?.confirm_details) },
      ]} />
      <${Card} title="Consumers"><${Table} rows=${value.consumer_details ?? []} keyOf=${(each) => each.consumer_tag} empty="It consumes nothing." columns=${[
        { title: "Tag", show: (each) => html`<bdi>${each.consumer_tag}</bdi>` },
        { title: "Queue", class: "name", show: (each) => html`<${QueueLink} ...${each.queue} />` },
        { title: "Acknowledges", show: (each) => (each.ack_required ? "yes" : "no") },
        { title: "Prefetch", number: true, show: (each) => (each.prefetch_count ? count(each.prefetch_count) : "no limit") },
        { title: "Exclusive", secondary: true, show: (each) => (each.exclusive ? "yes" : "no") },
      ]} /><//>
      <div class="halves">
        <${Card} title="Publishes to"><${Table} rows=${value.publishes ?? []} keyOf=${(each) => each.exchange?.name} empty="It published nothing." columns=${[
          { title: "Exchange", show: (each) => html`<${ExchangeLink} ...${each.exchange} />` },
          { title: "Publish", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "publish")} />` },
        ]} /><//>
        <${Card} title="Takes from"><${Table} rows=${value.deliveries ?? []} keyOf=${(each) => each.queue?.name} empty="It took nothing." columns=${[
          { title: "Queue", class: "name", show: (each) => html`<${QueueLink} ...${each.queue} />` },
          { title: "Deliver", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "deliver_get")} />` },
          { title: "Acks", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "ack")} />` },
        ]} /><//>
      </div>
      <${Card} title="Channel"><${Facts} rows=${[
        ["Connection", html`<${ConnectionLink} name=${value.connection_details.name} />`], ["Node", html`<${NodeLink} name=${value.node} />`], ["User", value.user], ["Number", String(value.number)],
        ["Idle since", value.idle_since ? clock(Date.parse(value.idle_since)) : "it is not"],
      ]} /><//>`}
    <//>`;
}
