// Cluster: nodes, who leads, alarms, partitions and links; and one node with its memory, disk and what it can be told.

import { html } from "../vendor/preact.js";
import { ask, may, path, post, put, useAsked, useLive } from "../api.js";
import { Chart, levels, usePast } from "../charts.js";
import { act, confirm, notify, open } from "../dialog.js";
import { Badge, Bar, Card, Facts, Figure, Fold, Loaded, Menu, Scroll, State } from "../elements.js";
import { bytes, count, counted, lasting, node as short, sized } from "../format.js";
import { Form } from "../form.js";
import { NodeLink } from "../names.js";
import { Picture, Timeline } from "../picture.js";
import { previewStop } from "../preview.js";
import { Table } from "../table.js";
import { level, NodeState } from "./overview.js";

export function Cluster() {
  const live = useLive("/nodes");
  const status = useAsked("/cluster/status", 3000);
  const stop = useAsked("/cluster-name").value;
  return html`
    <div class="row title"><h1>Cluster</h1>${stop ? html`<span class="sub"><bdi>${stop.name}</bdi></span>` : null}<span class="grow"></span>
      ${may("administrator") ? html`
        <button class="btn" onClick=${() => rename(stop?.name)}>Rename</button>
        <button class="btn" onClick=${rebalance}>Balance leaders</button>` : null}</div>
    <${Loaded} of=${live} what="the nodes" rows=${6}>${(nodes) => html`
      <${Verdict} nodes=${nodes} status=${status.value} />
      <div class="grid3">${nodes.map((each) => html`<${NodeCard} key=${each.name} of=${each} leads=${status.value?.metadata_leader === each.name} version=${status.value?.versions?.[each.name]} />`)}</div>
      <${Picture} />
      <${Timeline} nodes=${nodes} />
      ${status.value ? html`<${Alarms} status=${status.value} />` : null}
      ${may("administrator") ? html`<${Balance} />` : null}`}
    <//>`;
}

function Verdict({ nodes, status }) {
  const running = nodes.filter((each) => each.running);
  const away = nodes.filter((each) => !each.running);
  const majority = running.length * 2 > nodes.length;
  const split = Object.keys(status?.partitions ?? {});
  const silent = Object.entries(status?.unheard_nodes ?? {}).filter(([, is]) => is === "silent").map(([name]) => name);
  const tone = !majority || split.length ? "bad" : away.length ? "warn" : "ok";
  const text = !away.length ? `All ${nodes.length === 1 ? "is well: the node runs" : `${nodes.length} nodes run`}.`
    : `${away.map((each) => short(each.name)).join(" and ")} ${away.length === 1 ? "does" : "do"} not answer; ${running.length} of ${nodes.length} ${majority ? "are a majority, and go on" : "are no majority: changes and quorum queues wait"}.`;
  const tolerance = majority && nodes.length > 1 ? running.length - Math.floor(nodes.length / 2) - 1 : 0;
  const proof = split.length ? `Partition: ${split.map((each) => `${short(each)} does not see ${status.partitions[each].map(short).join(", ")}`).join("; ")}.${silent.length ? ` Nobody who answers hears ${silent.map(short).join(" and ")}: cut off, standing still, or switched off.` : ""}`
    : nodes.length === 1 ? "A single node: when it is lost, nobody is served." : tolerance > 0 ? `${counted(tolerance, "node")} may be lost.` : "No further node may be lost.";
  return html`<div class=${`card why ${tone}`}><span class=${`dot ${tone}`} aria-hidden="true"></span><div class="grow"><b>${text}</b><div class="sub">${proof}${status?.metadata_leader ? ` ${short(status.metadata_leader)} leads the metadata.` : " Nobody leads the metadata now."}</div></div></div>`;
}

function NodeCard({ of, leads, version }) {
  return html`
    <section class="card node" aria-label=${of.name}>
      <div class="row head"><b class="grow"><${NodeLink} name=${of.name} /></b>${leads ? html`<${Badge} text="leads metadata" title="leader of Raft group 0" />` : null}<${NodeState} of=${of} /></div>
      ${of.running ? html`
        <${Bar} share=${of.mem_used / of.mem_limit} level=${of.mem_alarm ? "bad" : level(of.mem_used, of.mem_limit)} words=${`memory ${bytes(of.mem_used)} of ${bytes(of.mem_limit)}`} />
        <${Bar} share=${of.fd_used / of.fd_total} level=${level(of.fd_used, of.fd_total)} words=${`descriptors ${count(of.fd_used)} of ${count(of.fd_total)}`} />
        <div class="sub">${bytes(of.disk_free)} of disk free, ${counted(of.sockets_used, "client")}, runs for ${lasting(of.uptime)}</div>` : html`<p class="empty">It does not answer. What it alone has is away until it is back.</p>`}
      ${version ? html`<div class="sub">${version}</div>` : null}
    </section>`;
}

function Alarms({ status }) {
  if (!status.alarms?.length) return null;
  return html`<${Card} title="Alarms">${status.alarms.map((each) => html`<p key=${JSON.stringify(each)}><${State} level="bad">${typeof each === "string" ? each : Object.values(each).join(", ")}<//></p>`)}<//>`;
}

function Balance() {
  const { value } = useAsked("/rebalance/queues", 3000);
  if (!value || !(value.running || value.moved || value.kept?.length || value.nodes?.length)) return null;
  return html`
    <${Card} title="Balance of leaders" aside=${html`<span class="sub">${value.running ? "running" : "the last one"}: ${counted(value.moved, "queue")} moved</span>`}>
      ${(value.nodes ?? []).length ? html`<${Table} rows=${value.nodes} keyOf=${(each) => JSON.stringify(each)} columns=${Object.keys(value.nodes[0]).map((key) => ({ title: key, show: (each) => String(each[key]) }))} />` : null}
      ${(value.kept ?? []).slice(0, 20).map((each) => html`<p class="sub" key=${JSON.stringify(each)}>${typeof each === "string" ? each : Object.values(each).join(": ")}</p>`)}
    <//>`;
}

function rename(now) {
  return open("Rename the cluster", (close) => html`
    <${Form} fields=${[{ name: "name", label: "Name", value: now, required: true, autofocus: true }]} label="Rename" cancel=${() => close()} submit=${async (values) => {
      await put("/cluster-name", values);
      close();
      notify(`The cluster is called ${values.name}.`);
    }} />`);
}

const rebalance = () => act("Leaders and masters are being balanced.", () => post("/rebalance/queues"));

async function drain(name) {
  const sure = await confirm(`Put ${short(name)} into maintenance?`, "Its clients are closed and its AMQP ports too; leaders are handed over. Revive ends it.", "Begin maintenance");
  if (sure) await act(({ connections }) => `${short(name)} is in maintenance; ${counted(connections, "connection")} closed.`, () => post("/node/drain"));
}

async function forget(name) {
  const sure = await confirm(`Forget ${short(name)}?`, `The cluster counts ${name} no longer; its replicas are made anew elsewhere. What it alone had is lost to the cluster. To come back it must join as a blank node.`, `Forget ${short(name)}`);
  if (sure && (await act(`Forgot ${name}.`, () => ask("DELETE", `/cluster/nodes${path(name)}`)))) location.hash = "#/cluster";
}

function limits(of) {
  const fields = [
    { name: "memory", label: "Memory limit, bytes", type: "number", value: String(of.mem_limit), required: true },
    { name: "disk", label: "Disk free limit, bytes", type: "number", value: String(of.disk_free_limit), required: true },
  ];
  return open(`Limits of ${short(of.name)}`, (close) => html`
    <p class="sub">They hold until the node stops. Publishers are blocked beyond them.</p>
    <${Form} fields=${fields} label="Set" cancel=${() => close()} submit=${async (values) => {
      await post("/node/vm_memory_high_watermark", { absolute: Number(values.memory) });
      await post("/node/disk_free_limit", { absolute: Number(values.disk) });
      close();
      notify("The limits are set.");
    }} />`);
}

export function Node({ name }) {
  const live = useLive(`/nodes${path(name)}`);
  const mine = useAsked("/overview?columns=node").value?.node === name;
  const past = usePast(`/nodes${path(name)}`, { day: true });
  const admin = may("administrator");
  return html`
    <${Loaded} of=${live} what=${`node ${name}`} rows=${8} missing=${html`<b>There is no node “<bdi>${name}</bdi>” in the cluster.</b> <p><a href="#/cluster">All nodes</a></p>`}>${(value) => html`
      <div class="row title"><h1><bdi>${name}</bdi></h1><${NodeState} of=${value} />${mine ? html`<span class="sub">you look through this node</span>` : null}<span class="grow"></span>
        ${admin && mine ? html`<button class="btn" onClick=${() => limits(value)}>Limits…</button>
          ${value.being_drained ? html`<button class="btn p" onClick=${() => act("It serves again.", () => post("/node/revive"))}>Revive</button>` : html`<button class="btn" onClick=${() => drain(name)}>Maintenance…</button>`}` : null}
        ${admin ? html`<${Menu} label="More acts" acts=${[
          mine && ["Collect garbage", () => act(({ objects }) => `Freed ${counted(objects, "object")}.`, () => post("/node/force_gc"))],
          mine && ["Begin rates anew", () => act("Rates and their past begin anew.", () => ask("DELETE", `/reset${path(name)}`))],
          !value.running && ["Forget…", () => forget(name), true],
        ]} />` : null}</div>
      <${StopSafety} name=${name} running=${value.running} />
      ${value.running ? html`<${Running} value=${value} past=${past} name=${name} mine=${mine} />` : html`<div class="card empty">It does not answer. <a href="#/cluster">The cluster</a></div>`}`}
    <//>`;
}

function StopSafety({ name, running }) {
  const verdict = useSafety(running ? name : null);
  if (!verdict) return null;
  const tone = verdict.safe ? "ok" : "warn";
  return html`<div class=${`card why ${tone}`}><span class=${`dot ${tone}`} aria-hidden="true"></span><div class="grow"><b>${verdict.safe ? "Safe to stop: every queue goes on without it." : "Not safe to stop now."}</b><div class="sub">${verdict.text}</div></div>${may("monitoring") ? html`<button class="btn" onClick=${() => previewStop(name)}>What a stop touches…</button>` : null}</div>`;
}

function useSafety(name) {
  const { value, error } = useLive(name === null ? null : `/health/checks/safe-to-stop${path(name)}`);
  if (error?.status === 503) return { safe: false, text: error.message };
  if (value) return { safe: true, text: "" };
  return null;
}

function Running({ value, past, name, mine }) {
  const [memory, unit] = sized(value.mem_used);
  const [free, freeUnit] = sized(value.disk_free);
  const turn = value.event_loop ?? {};
  const admin = may("administrator");
  return html`
    <div class="grid4">
      <${Figure} title="Memory" value=${memory} unit=${unit} sub=${`of ${bytes(value.mem_limit)}${value.mem_alarm ? ": publishers are blocked" : ""}`} />
      <${Figure} title="Disk free" value=${free} unit=${freeUnit} sub=${`alarm below ${bytes(value.disk_free_limit)}`} />
      <${Figure} title="Descriptors" value=${count(value.fd_used)} sub=${`of ${count(value.fd_total)}; ${count(value.sockets_used)} of ${count(value.sockets_total)} clients`} />
      <${Figure} title="Longest turn" value=${count(turn.longest_own_ms ?? turn.longest_turn_ms)} unit="ms" sub=${`of its event loop in ${turn.window_s ?? 30} s; ${count(turn.long_turns)} over ${turn.long_turn_ms ?? 30} ms`} />
    </div>
    <div class="grid2">
      <${Chart} title="Memory" kind="bytes" choice=${past.choice} step=${past.step} age=${past.age} series=${[{ label: "used", points: levels(past.past?.mem_used_details) }]} />
      <${Memory} name=${name} />
    </div>
    <div class="halves">
      <${Card} title="Node"><${Facts} rows=${[
        ["Uptime", lasting(value.uptime)], ["Process", value.os_pid], ["Processors", count(value.processors)], ["Data", value.db_dir],
        ["Log", value.log_files?.join(", ")], ["Configuration", value.config_files?.join(", ") || "no file"], ["Logins", value.auth_mechanisms?.map((each) => each.name).join(", ")],
      ]} /><//>
      <${Card} title="Disk writes"><${Facts} rows=${[
        ["Writes", count(value.io_write_count)], ["A write takes", `${value.io_write_avg_time} ms`], ["Syncs", count(value.io_sync_count)], ["A sync takes", `${value.io_sync_avg_time} ms`],
        ["Slowest sync", value.journal ? `${value.journal.sync_max_time} ms` : undefined], ["Waits for disk space", value.journal ? count(value.journal.hold_count) : undefined],
      ]} /><//>
    </div>
    ${admin && mine ? html`
      <${Fold} title="Log">${() => html`<${Log} />`}<//>
      <${Fold} title="Settings that act">${() => html`<${Settings} />`}<//>` : null}`;
}

const PARTS = {
  connection_readers: "connections, reading", connection_writers: "connections, writing", connection_channels: "channels", connection_other: "connections",
  queue_procs: "classic queues", queue_slave_procs: "mirrors", quorum_queue_procs: "quorum queues", stream_queue_procs: "streams", stream_queue_replica_reader_procs: "stream readers",
  binary: "message bodies", quorum_ets: "newest entries of logs", msg_index: "message store", mnesia: "metadata", mgmt_db: "past of statistics", code: "code", other_system: "the rest",
};

function Memory({ name }) {
  const { value } = useAsked(`/nodes${path(name)}/memory`, 5000);
  const rows = Object.entries(value?.memory ?? {}).filter(([key, each]) => PARTS[key] && each > 0).sort(([, one], [, other]) => other - one);
  const total = rows.reduce((sum, [, each]) => sum + each, 0);
  return html`
    <${Card} title="What takes the memory"><ul class="shares">${rows.slice(0, 8).map(([key, each]) => html`
      <li key=${key}><${Bar} share=${each / total} words=${`${PARTS[key]}, ${bytes(each)}`} /></li>`)}</ul><//>`;
}

function Log() {
  const { value, error } = useAsked("/node/log?lines=100", 3000);
  if (error) return html`<p class="empty">${error.message}</p>`;
  return html`<${Scroll} tag="pre" class="body log" label="the log">${(value?.lines ?? []).map((line) => (typeof line === "string" ? line : JSON.stringify(line))).join("\n")}<//>`;
}

function Settings() {
  const { value, error } = useAsked("/config/effective");
  if (error) return html`<p class="empty">${error.message}</p>`;
  return html`<${Table} rows=${value?.settings ?? []} keyOf=${(each) => each.key} empty="None." order=${["Key"]} columns=${[
    { title: "Key", by: (each) => each.key, show: (each) => html`<span class="mono">${each.key}</span>` },
    { title: "Value", show: (each) => html`<span class="mono">${typeof each.value === "string" ? each.value : JSON.stringify(each.value)}</span>` },
    { title: "From", by: (each) => each.source, show: (each) => `${each.source}${each.at ? `, ${each.at}` : ""}` },
  ]} />`;
}
