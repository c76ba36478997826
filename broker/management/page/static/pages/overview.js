// Overview: is the cluster well, what goes through it, which nodes, what listens, what comes and goes.

import { html } from "../vendor/preact.js";
import { may, useLive } from "../api.js";
import { Chart, levels, rates, usePast } from "../charts.js";
import { Bar, Card, Figure, Freshness, Loaded, Rate, State } from "../elements.js";
import { bytes, count, counted, lasting, node, perSecond } from "../format.js";
import { NodeLink } from "../names.js";
import { Table } from "../table.js";

export function Overview() {
  const live = useLive("/overview");
  const nodes = useLive(may("monitoring") ? "/nodes" : null);
  const { past, step, age, choice } = usePast("/overview", { day: true });
  return html`
    <div class="row"><h1>Overview</h1>${live.value ? html`<span class="sub">cluster <bdi>${live.value.cluster_name}</bdi> · ${live.value.product_name} ${live.value.product_version}, as RabbitMQ ${live.value.rabbitmq_version}</span>` : null}</div>
    <${Loaded} of=${live} what="the overview" rows=${6}>${(value) => html`
      ${nodes.value ? html`<${Health} nodes=${nodes.value} />` : null}
      <${Figures} value=${value} />
      <${Charts} past=${past} step=${step} age=${age} choice=${choice} />
      ${nodes.value ? html`<${Freshness} of=${nodes} /><${Nodes} nodes=${nodes.value} />` : null}
      <div class="halves">
        <${Churn} value=${value} />
        <${Listeners} value=${value} />
      </div>`}
    <//>`;
}

function Health({ nodes }) {
  const away = nodes.filter((each) => !each.running);
  const here = nodes.filter((each) => each.running);
  const faults = [
    ...away.map((each) => `${node(each.name)} does not answer`),
    ...here.filter((each) => each.mem_alarm).map((each) => `memory alarm at ${node(each.name)}: publishers are blocked`),
    ...here.filter((each) => each.disk_free_alarm).map((each) => `disk alarm at ${node(each.name)}: publishers are blocked`),
    ...here.filter((each) => each.partitions?.length).map((each) => `${node(each.name)} does not see ${each.partitions.map(node).join(", ")}`),
    ...here.filter((each) => each.being_drained).map((each) => `${node(each.name)} is in maintenance`),
  ];
  const level = away.length || here.some((each) => each.mem_alarm || each.disk_free_alarm) ? "bad" : faults.length ? "warn" : "ok";
  const majority = here.length > nodes.length / 2;
  const text = faults.length ? `${faults[0][0].toUpperCase()}${faults[0].slice(1)}.` : nodes.length === 1 ? "Well: the node runs, no alarm." : `Well: all ${nodes.length} nodes run, no alarm.`;
  const proof = [
    ...faults.slice(1),
    away.length ? (majority ? `${here.length} of ${nodes.length} nodes are a majority: confirmed messages are safe, and queues with a majority go on` : "no majority: what needs one waits") : null,
  ].filter(Boolean);
  return html`
    <div class=${`card why ${level}`}>
      <span class=${`dot ${level}`} aria-hidden="true"></span>
      <div class="grow"><b>${text}</b>${proof.length ? html`<div class="sub">${proof.join("; ")}.</div>` : null}</div>
      ${faults.length ? html`<a class="btn" href="#/cluster">Cluster</a>` : null}
    </div>`;
}

function Figures({ value }) {
  const { queue_totals: totals = {}, message_stats: stats, object_totals: objects = {} } = value;
  const growth = totals.messages_ready_details?.rate;
  return html`
    <div class="grid4">
      <${Figure} title="Ready" value=${count(totals.messages_ready ?? 0)} sub=${html`<${Growth} rate=${growth} /> in ${counted(objects.queues ?? 0, "queue")}`} />
      <${Figure} title="Unacknowledged" value=${count(totals.messages_unacknowledged ?? 0)} sub=${`held by ${counted(objects.consumers ?? 0, "consumer")}`} />
      <${Figure} title="In → out" value=${html`<${Number2} value=${perSecond(stats, "publish")} /> → <${Number2} value=${perSecond(stats, "deliver_get")} />`} unit="/s" sub=${html`<${Rate} value=${perSecond(stats, "confirm")} /> confirmed, <${Rate} value=${perSecond(stats, "ack")} /> acknowledged`} />
      <${Figure} title="Connections · channels" value=${`${count(objects.connections ?? 0)} · ${count(objects.channels ?? 0)}`} sub=${`${counted(objects.exchanges ?? 0, "exchange")}`} />
    </div>`;
}

const Number2 = ({ value }) => (Number.isFinite(value) ? count(value) : "0");

/** A change per second with its direction. */
export function Growth({ rate }) {
  if (!Number.isFinite(rate) || Math.abs(rate) < 0.05) return html`<span>steady</span>`;
  return html`<span><span class=${rate > 0 ? "up" : "down"}>${rate > 0 ? "▲" : "▼"}</span> <${Rate} value=${Math.abs(rate)} /></span>`;
}

function Charts({ past, step, age, choice }) {
  const totals = past?.queue_totals;
  const stats = past?.message_stats;
  return html`
    <${Chart} title="Messages" choice=${choice} step=${step} age=${age} series=${[
      { label: "ready", points: levels(totals?.messages_ready_details) },
      { label: "unacknowledged", points: levels(totals?.messages_unacknowledged_details) },
    ]} />
    <${Chart} title="Message rates" kind="rate" step=${step} age=${age} series=${[
      { label: "publish", points: rates(stats?.publish_details) },
      { label: "deliver", points: rates(stats?.deliver_get_details) },
      { label: "acknowledge", points: rates(stats?.ack_details) },
      { label: "confirm", points: rates(stats?.confirm_details) },
    ]} />`;
}

/** How close to its limit something is. */
export function level(used, limit, { warn = 0.8 } = {}) {
  if (!limit) return "ok";
  return used >= limit ? "bad" : used >= warn * limit ? "warn" : "ok";
}

const COLUMNS = [
  { title: "Node", class: "name", by: (each) => each.name, show: (each) => html`<${NodeLink} name=${each.name} />` },
  { title: "State", show: (each) => html`<${NodeState} of=${each} />` },
  { title: "Memory", show: (each) => each.running ? html`<${Bar} share=${each.mem_used / each.mem_limit} level=${each.mem_alarm ? "bad" : level(each.mem_used, each.mem_limit)} words=${`${bytes(each.mem_used)} of ${bytes(each.mem_limit)}`} />` : "–" },
  { title: "Disk free", number: true, secondary: true, show: (each) => each.running ? html`${bytes(each.disk_free)}<div class="sub">alarm below ${bytes(each.disk_free_limit)}</div>` : "–" },
  { title: "Descriptors", secondary: true, show: (each) => each.running ? html`<${Bar} share=${each.fd_used / each.fd_total} level=${level(each.fd_used, each.fd_total)} words=${`${count(each.fd_used)} of ${count(each.fd_total)}`} />` : "–" },
  { title: "Clients", number: true, secondary: true, show: (each) => each.running ? html`${count(each.sockets_used)}<div class="sub">of ${count(each.sockets_total)}</div>` : "–" },
  { title: "Uptime", number: true, secondary: true, show: (each) => each.running ? lasting(each.uptime) : "–" },
];

/** The state of a node in a word. */
export function NodeState({ of }) {
  if (!of.running) return html`<${State} level="bad">does not answer<//>`;
  if (of.mem_alarm || of.disk_free_alarm) return html`<${State} level="bad">${of.mem_alarm ? "memory" : "disk"} alarm<//>`;
  if (of.being_drained) return html`<${State} level="warn">maintenance<//>`;
  return html`<${State} level="ok">running<//>`;
}

function Nodes({ nodes }) {
  return html`<${Card} title="Nodes"><${Table} rows=${nodes} columns=${COLUMNS} keyOf=${(each) => each.name} order=${["Node"]} /><//>`;
}

const CHURN = [
  ["connections", "connection_created", "connection_closed", "opened", "closed"],
  ["channels", "channel_created", "channel_closed", "opened", "closed"],
  ["queues", "queue_created", "queue_deleted", "created", "deleted"],
];

function Churn({ value }) {
  const churn = value.churn_rates;
  if (!churn) return null;
  return html`
    <${Card} title="Coming and going">
      <table><thead><tr><th></th><th class="n">Begun</th><th class="n">Ended</th><th class="n secondary">Since the start</th></tr></thead>
      <tbody>${CHURN.map(([what, begun, ended]) => html`
        <tr key=${what}><td>${what}</td><td class="n"><${Rate} value=${perSecond(churn, begun)} /></td><td class="n"><${Rate} value=${perSecond(churn, ended)} /></td>
          <td class="n sub secondary">${count(churn[begun])} begun, ${count(churn[ended])} ended</td></tr>`)}
      </tbody></table>
    <//>`;
}

function Listeners({ value }) {
  if (!value.listeners?.length) return null;
  return html`
    <${Card} title="Listening">
      <${Table} rows=${value.listeners} keyOf=${(each) => `${each.node} ${each.protocol} ${each.port}`} columns=${[
        { title: "Protocol", by: (each) => each.protocol, show: (each) => each.protocol },
        { title: "Address", show: (each) => html`<span class="mono">${each.ip_address.includes(":") ? `[${each.ip_address}]` : each.ip_address}:${each.port}</span>` },
        { title: "Node", by: (each) => each.node, show: (each) => html`<${NodeLink} name=${each.node} />` },
      ]} />
    <//>`;
}
