// Connections: the list, and one with its channels, its client and what it sends.

import { html } from "../vendor/preact.js";
import { path, useLive } from "../api.js";
import { Chart, rates, usePast } from "../charts.js";
import { ClientState, closeConnection } from "../connection_acts.js";
import { Card, Facts, Figure, Json, Loaded, Rate } from "../elements.js";
import { bytes, clock, count, counted, lasting, perSecond } from "../format.js";
import { ChannelLink, ConnectionLink, NodeLink, useVhost } from "../names.js";
import { Listing, Table } from "../table.js";

const ByteRate = ({ value }) => (Number.isFinite(value) ? html`${bytes(value)}<span class="unit">/s</span>` : "–");

const COLUMNS = [
  { title: "Client", class: "name", sort: "user_provided_name", show: (each) => html`<${ConnectionLink} name=${each.name} title=${each.user_provided_name} />${each.user_provided_name ? html`<div class="sub">${each.name}</div>` : null}` },
  { title: "Virtual host", secondary: true, sort: "vhost", show: (each) => html`<bdi>${each.vhost}</bdi>` },
  { title: "User", sort: "user", secondary: true, show: (each) => html`<bdi>${each.user}</bdi>` },
  { title: "State", sort: "state", show: (each) => html`<${ClientState} of=${each} />` },
  { title: "TLS", secondary: true, sort: "ssl", show: (each) => (each.ssl ? each.ssl_protocol ?? "yes" : "no") },
  { title: "Node", secondary: true, sort: "node", show: (each) => html`<${NodeLink} name=${each.node} />` },
  { title: "Channels", number: true, sort: "channels", show: (each) => count(each.channels) },
  { title: "From client", number: true, secondary: true, sort: "recv_oct_details.rate", show: (each) => html`<${ByteRate} value=${each.recv_oct_details?.rate} />` },
  { title: "To client", number: true, secondary: true, sort: "send_oct_details.rate", show: (each) => html`<${ByteRate} value=${each.send_oct_details?.rate} />` },
  { title: "", class: "acts", show: (each) => html`<button class="btn" onClick=${() => closeConnection(each)}>Close…</button>` },
];
const KEYS = "name,user_provided_name,vhost,user,state,ssl,ssl_protocol,node,channels,recv_oct_details.rate,send_oct_details.rate";

export function Connections() {
  const [vhost, choice] = useVhost();
  return html`
    <div class="row"><h1>Connections</h1></div>
    <${Listing} id="connections" path=${vhost === "" ? "/connections" : `/vhosts${path(vhost)}/connections`} columns=${COLUMNS} keys=${KEYS} keyOf=${(each) => each.name}
      what="the connections" order=${["recv_oct_details.rate", true]} empty="No client is connected." aside=${choice} />`;
}

export function Connection({ name }) {
  const where = path("connections", name);
  const live = useLive(where);
  const past = usePast(where);
  return html`
    <${Loaded} of=${live} what=${`connection ${name}`} rows=${8} missing=${html`<b>There is no connection “<bdi>${name}</bdi>”.</b> <div class="sub">It was closed. A client that connects again gets a new name.</div><p><a href="#/connections">All connections</a></p>`}>${(value) => html`
      <div class="row title"><h1><bdi>${value.user_provided_name || name}</bdi></h1><span class="sub">${value.user_provided_name ? `${name} · ` : ""}vhost <bdi>${value.vhost}</bdi></span><${ClientState} of=${value} /><span class="grow"></span>
        <button class="btn" onClick=${() => closeConnection(value, () => { location.hash = "#/connections"; })}>Close…</button></div>
      <div class="grid4">
        <${Figure} title="From the client" ...${flow(value, "recv")} />
        <${Figure} title="To the client" ...${flow(value, "send")} />
        <${Figure} title="Channels" value=${count(value.channels)} sub=${`of ${count(value.channel_max)} at most`} />
        <${Figure} title="Waits for its socket" value=${count(value.send_pend)} sub=${value.send_pend ? "the client does not read as fast" : "it reads as fast as we write"} />
      </div>
      <${Chart} title="Bytes per second" kind="bytes" choice=${past.choice} step=${past.step} age=${past.age} series=${[
        { label: "from the client", points: rates(past.past?.recv_oct_details) },
        { label: "to the client", points: rates(past.past?.send_oct_details) },
      ]} />
      <${ChannelsOf} where=${where} />
      <div class="halves">
        <${Card} title="Connection"><${Facts} rows=${[
          ["User", value.user], ["Node", html`<${NodeLink} name=${value.node} />`], ["Connected", `${clock(value.connected_at)}, for ${lasting(Date.now() - value.connected_at)}`],
          ["Protocol", value.protocol], ["Login", value.auth_mechanism], ["Heartbeat", value.timeout ? `${value.timeout} s` : "none"], ["Largest frame", bytes(value.frame_max)],
          ["TLS", value.ssl ? `${value.ssl_protocol ?? ""} ${value.ssl_cipher ?? ""}` : "no"], ["Certificate", value.peer_cert_subject],
        ]} /><//>
        <${Card} title="What the client says of itself"><${Json} value=${value.client_properties} none="Nothing." /><//>
      </div>`}
    <//>`;
}

function flow(value, way) {
  const [number, unit] = bytes(value[`${way}_oct_details`]?.rate ?? 0).split(" ");
  return { value: number, unit: `${unit}/s`, sub: `${bytes(value[`${way}_oct`])} in ${counted(value[`${way}_cnt`], way === "recv" ? "read" : "write")}` };
}

function ChannelsOf({ where }) {
  const live = useLive(`${where}/channels`);
  return html`
    <${Card} title="Channels">
      <${Loaded} of=${live} what="the channels" rows=${2}>${(rows) => html`
        <${Table} rows=${rows} keyOf=${(each) => each.name} empty="It has no channel open." columns=${[
          { title: "Channel", class: "name", by: (each) => each.number, show: (each) => html`<${ChannelLink} name=${each.name} />` },
          { title: "State", show: (each) => html`<${ClientState} of=${each} />` },
          { title: "Unacked", number: true, by: (each) => each.messages_unacknowledged, show: (each) => count(each.messages_unacknowledged) },
          { title: "Prefetch", number: true, show: (each) => each.prefetch_count || each.global_prefetch_count || "no limit" },
          { title: "Publish", number: true, show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "publish")} />` },
          { title: "Deliver", number: true, secondary: true, show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "deliver_get")} />` },
          { title: "Acks", number: true, secondary: true, show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "ack")} />` },
        ]} />`}
      <//>
    <//>`;
}
