// One queue or stream: is it well, what waits, where its copies are, who holds what, and what can be done.

import { html, useEffect, useRef } from "../vendor/preact.js";
import { ask, may, path, post, remove, useBefore, useLive } from "../api.js";
import { Bindings } from "../bindings.js";
import { Chart, levels, mark, marksOf, rates, usePast } from "../charts.js";
import { act, confirm, notify, open } from "../dialog.js";
import { Bar, Card, Facts, Figure, Json, Loaded, Menu, Rate, Scroll } from "../elements.js";
import { bytes, clock, count, counted, lasting, node, perSecond, sized } from "../format.js";
import { Form } from "../form.js";
import { takeBack } from "../holders.js";
import { getMessages, publish } from "../messages.js";
import { ConnectionLink, ExchangeLink, href, NodeLink } from "../names.js";
import { Badges, QueueState, typeOf } from "../queue_facts.js";
import { useHappenings } from "../picture.js";
import { DeadLetters, lookForDeadLetters, sendBack } from "../redrive.js";
import { Members } from "../replicas.js";
import { Table } from "../table.js";
import { Browse, showBrowse } from "./browse.js";
import { Growth } from "./overview.js";

export function Queue({ vhost, name }) {
  const where = path("queues", vhost, name);
  const live = useLive(where);
  useMarks(where, live.value);
  return html`
    <${Loaded} of=${live} what=${`queue ${name}`} rows=${8} missing=${html`<b>There is no queue “<bdi>${name}</bdi>” in virtual host “<bdi>${vhost}</bdi>”.</b> <div class="sub">It was deleted, or never declared.</div><p><a href="#/queues">All queues</a></p>`}>
      ${(queue) => html`<${Whole} queue=${queue} where=${where} />`}
    <//>`;
}

function Whole({ queue, where }) {
  const holders = useLive(`${where}/holders`);
  const past = usePast(where);
  return html`
    <${Head} queue=${queue} where=${where} />
    <${Why} queue=${queue} where=${where} />
    <${DeadLetters} queue=${queue} where=${where} />
    <${Figures} queue=${queue} />
    <div class="grid2">
      <${Messages} queue=${queue} where=${where} past=${past} />
      <${Members} queue=${queue} />
    </div>
    <${Consumers} queue=${queue} holders=${holders} />
    <${Browse} queue=${queue} where=${where} />
    <div class="grid2">
      <${Rates} queue=${queue} past=${past} />
      <${About} queue=${queue} />
    </div>
    <${Flows} queue=${queue} />
    <${Bindings} vhost=${queue.vhost} name=${queue.name} kind="queue" />`;
}

/** Notes what changes while one looks: the leader, the state, the policy. */
function useMarks(where, queue) {
  const leader = queue?.leader ?? queue?.node;
  const before = useBefore({ state: queue?.state, policy: queue?.policy, known: Boolean(queue) });
  const led = useRef(null); // whoever did last: between two leaders there may be none
  useEffect(() => {
    const last = led.current;
    if (leader) led.current = leader;
    if (!queue || !before?.known) return;
    if (leader && last && last !== leader) mark(where, `leader moved ${node(last)} → ${node(leader)}`);
    else if (before.state !== queue.state && (queue.state !== "running" || before.state !== "flow")) mark(where, `state ${before.state} → ${queue.state}`);
    if (before.policy !== queue.policy) mark(where, `policy ${before.policy ?? "none"} → ${queue.policy ?? "none"}`);
  }, [leader, queue?.state, queue?.policy]);
}

async function purge(queue) {
  const sure = await confirm(`Purge ${queue.name}?`, `${counted(queue.messages_ready, "ready message")} of ${queue.name} (${bytes(queue.message_bytes_ready)}) are lost for good. What consumers hold stays with them.`, `Purge ${queue.name}`);
  if (sure) await act(`Purged ${queue.name}.`, () => remove(`${path("queues", queue.vhost, queue.name)}/contents`));
}

async function destroy(queue) {
  const lost = [queue.messages ? `${counted(queue.messages, "message")} (${bytes(queue.message_bytes)}) are lost for good` : "It is empty", queue.consumers ? `${counted(queue.consumers, "consumer")} will be cancelled` : null];
  const sure = await confirm(`Delete ${queue.name}?`, `${lost.filter(Boolean).join("; ")}. Its bindings go with it.`, `Delete ${queue.name}`);
  if (sure && (await act(`Deleted ${queue.name}.`, () => remove(path("queues", queue.vhost, queue.name))))) location.hash = "#/queues";
}

function move(queue) {
  if (queue.type !== "classic") {
    return open(`Move ${queue.name}`, (close) => html`
      <p class="ask">${queue.type === "stream" ? "A stream moves by its replicas: add one where it shall be, let that one lead, and remove another." : "A quorum queue moves by its replicas: add one where it shall be, and remove another. The node of a removed leader hands over first."}</p>
      <div class="row end"><button class="btn p" onClick=${() => close()}>Good</button></div>`);
  }
  const fields = [
    { name: "target", label: "Into quorum queue", required: true, autofocus: true, hint: "It is declared if it does not exist; bindings are copied." },
    { name: "delete_source", label: `Delete ${queue.name} when it is empty`, type: "check" },
  ];
  return open(`Move the messages of ${queue.name}`, (close) => html`
    <${Form} fields=${fields} label="Move" cancel=${() => close()} submit=${async (values) => {
      await post(`${path("queues", queue.vhost, queue.name)}/actions`, { action: "migrate", ...values });
      close();
      notify(`Moving ${queue.name} to ${values.target} has begun.`);
    }} />`);
}

function Head({ queue, where }) {
  const action = (name) => post(`${where}/actions`, { action: name });
  const isMirrored = typeOf(queue) === "mirrored";
  const takes = queue.type !== "stream";
  return html`
    <div class="row title">
      <h1><bdi>${queue.name}</bdi></h1><span class="sub">vhost <bdi>${queue.vhost}</bdi></span><${Badges} queue=${queue} whole />
      <${QueueState} queue=${queue} />
      <span class="grow"></span>
      <button class="btn" onClick=${() => publish({ vhost: queue.vhost, key: queue.name })}>Publish</button>
      ${may("browser") ? html`<button class="btn" onClick=${showBrowse}>Browse</button>` : null}
      ${takes ? html`<button class="btn" onClick=${() => getMessages(queue)}>Get messages</button>` : null}
      ${may("administrator") ? html`<button class="btn" onClick=${() => move(queue)}>Move…</button>` : null}
      <${Menu} label="More acts" acts=${[
        isMirrored && may("administrator") && ["Synchronise mirrors", () => act("Synchronising has begun.", () => action("sync"))],
        isMirrored && may("administrator") && queue.state === "syncing" && ["Stop synchronising", () => act("Synchronising is stopped.", () => action("cancel_sync"))],
        takes && ["Look for dead letters…", () => lookForDeadLetters(queue)],
        ["Export definition", () => exportDefinition(queue)],
        takes && ["Purge…", () => purge(queue), true],
        ["Delete…", () => destroy(queue), true],
      ]} />
    </div>
    ${queue.type === "classic" && may("administrator") ? html`<${Migration} where=${where} />` : null}`;
}

function exportDefinition(queue) {
  const { name, vhost, durable, auto_delete, arguments: args } = queue;
  const text = JSON.stringify({ name, vhost, durable, auto_delete, arguments: args }, null, 2);
  return open(`Definition of ${name}`, () => html`<${Scroll} tag="pre" class="body" label="definition">${text}<//>`);
}

function Migration({ where }) {
  const live = useLive(`${where}/migration`);
  const found = live.error ? null : live.value;
  if (!found) return null;
  return html`
    <div class=${`card why ${found.state === "failed" ? "bad" : "ok"}`}>
      <div class="grow"><b>Moving to <bdi>${found.target}</bdi>: ${found.state}, ${counted(found.moved, "message")} moved, ${count(found.left)} left.</b><div class="sub">${found.text}</div></div>
      ${found.state === "running" ? html`<button class="btn" onClick=${() => act("Moving is stopped; nothing is lost.", () => post(`${where}/actions`, { action: "cancel_migrate" }))}>Stop</button>` : null}
    </div>`;
}

/** An act that the answer to "why" offers: a request to the API, with what it costs. */
async function carryOut(offered, queue) {
  if (offered.path.endsWith("/browse")) return showBrowse();
  if (offered.path.endsWith("/redrive")) return sendBack(queue, null);
  if (offered.loses && !(await confirm(`${offered.label}?`, `${offered.loses[0].toUpperCase()}${offered.loses.slice(1)}.`, offered.label))) return;
  await act(`Done: ${offered.label}.`, () => ask(offered.method, offered.path.replace(/^\/api/, ""), offered.body ?? undefined));
}

const LEVELS = { alarm: "bad", no_majority: "bad", no_leader: "bad", damaged: "bad", node_down: "bad", waits_for_node: "bad", no_answer: "bad" };

function Why({ queue, where }) {
  const live = useLive(`${where}/why`);
  const why = live.value;
  if (!why) return html`<div class="card why"><span class="dot off"></span><div class="grow"><b>${live.error ? "Why it drains or not is not known now." : "Looking whether it drains…"}</b><div class="sub">${live.error?.message ?? "\u00a0"}</div></div></div>`;
  const level = why.well ? "ok" : LEVELS[why.kind] ?? "warn";
  return html`
    <div class=${`card why ${level}`} aria-live="polite">
      <span class=${`dot ${level}`} aria-hidden="true"></span>
      <div class="grow"><b>${why.text}</b>
        ${why.proof.length || why.advice ? html`<div class="sub">${[why.proof.join("; "), why.advice].filter(Boolean).join(". ")}</div>` : null}
        ${why.also.length ? html`<div class="also">${why.also.map((each) => html`<div key=${each.kind}>Also: ${each.text} <span class="sub">${each.proof.join("; ")}</span></div>`)}</div>` : null}
      </div>
      ${why.well ? null : html`<a class="btn" href="#consumers" onClick=${(event) => {
        event.preventDefault();
        document.getElementById("consumers")?.scrollIntoView({ block: "start", behavior: "smooth" });
      }}>Who holds them</a>`}
      ${why.acts.map((offered, index) => html`<button key=${offered.label} class=${`btn ${index === 0 && !why.well ? "p" : ""}`} title=${offered.loses} onClick=${() => carryOut(offered, queue)}>${offered.label.split(": ")[0]}</button>`)}
    </div>`;
}

function Figures({ queue }) {
  const stats = queue.message_stats;
  const [disk, diskUnit] = sized(queue.disk_bytes);
  const oldest = queue.head_message_timestamp ? ` · oldest of ${clock(queue.head_message_timestamp * 1000)}` : "";
  const dead = queue.messages_dlx ? `, ${counted(queue.messages_dlx, "dead letter")} waits` : "";
  const isStream = queue.type === "stream";
  return html`
    <div class="grid4">
      <${Figure} title=${isStream ? "Messages kept" : "Ready"} value=${count(queue.messages_ready)} sub=${html`<${Growth} rate=${queue.messages_ready_details?.rate} /> · ${bytes(queue.message_bytes_ready)}${oldest}`} />
      ${isStream
        ? html`<${Figure} title="Next offset" value=${count(queue.stream?.next_offset)} sub=${`the first is ${count(queue.stream?.first_offset)}, ${counted(queue.segments, "segment")}`} />`
        : html`<${Figure} title="Unacknowledged" value=${count(queue.messages_unacknowledged)} sub=${`${bytes(queue.message_bytes_unacknowledged)} with ${counted(queue.consumers, "consumer")}${dead}`} />`}
      <${Figure} title="In → out" value=${`${count(perSecond(stats, "publish") ?? 0)} → ${count(perSecond(stats, "deliver_get") ?? 0)}`} unit="/s" sub=${html`<${Rate} value=${perSecond(stats, "ack") ?? 0} /> acknowledged, <${Rate} value=${perSecond(stats, "redeliver") ?? 0} /> redelivered`} />
      <${Figure} title="On disk" value=${disk} unit=${diskUnit} sub=${`${bytes(queue.memory)} of memory${queue.messages_paged_out ? `, ${counted(queue.messages_paged_out, "message")} paged out` : ""}`} />
    </div>`;
}

function Messages({ queue, where, past }) {
  const seen = marksOf(where, Date.now() - past.age * 1000);
  const told = useHappenings(queue, past.age).filter(({ at }) => !seen.some((each) => Math.abs(each.at - at) < 5000));
  const events = [...seen, ...told].sort((one, other) => one.at - other.at);
  return html`<${Chart} title="Messages" choice=${past.choice} step=${past.step} age=${past.age} events=${events} series=${[
    { label: "ready", points: levels(past.past?.messages_ready_details) },
    { label: "unacknowledged", points: levels(past.past?.messages_unacknowledged_details) },
  ]} />`;
}

function Rates({ past }) {
  const stats = past.past?.message_stats;
  return html`<${Chart} title="Message rates" kind="rate" step=${past.step} age=${past.age} series=${[
    { label: "publish", points: rates(stats?.publish_details) },
    { label: "deliver", points: rates(stats?.deliver_get_details) },
    { label: "acknowledge", points: rates(stats?.ack_details) },
    { label: "redeliver", points: rates(stats?.redeliver_details) },
  ]} />`;
}

const limitOf = (holder) => (holder.prefetch_count && holder.channel_prefetch_count ? Math.min(holder.prefetch_count, holder.channel_prefetch_count) : holder.prefetch_count || holder.channel_prefetch_count);

function holds(holder) {
  const limit = limitOf(holder);
  const level = holder.prefetch_full ? (holder.oldest_ms > 60_000 ? "bad" : "warn") : "ok";
  const words = limit ? `${count(holder.messages_unacknowledged)} of ${count(limit)}` : `${count(holder.messages_unacknowledged)}, no limit`;
  return html`<${Bar} share=${limit ? holder.messages_unacknowledged / limit : 0} level=${level} words=${holder.ack_required ? words : "acknowledged on delivery"} />`;
}

async function closeHolder(holder) {
  const who = holder.user_provided_name || holder.connection_name;
  const sure = await confirm(`Close the connection of ${who}?`, `All channels of ${who} are closed. ${counted(holder.messages_unacknowledged, "unacknowledged message")} of this queue come back to it. The client may connect again.`, "Close the connection");
  if (sure) await act(`Closed the connection of ${who}.`, () => ask("DELETE", path("connections", holder.connection_name), undefined, { headers: { "X-Reason": "Closed via management plugin" } }));
}

function Consumers({ queue, holders }) {
  const details = new Map((queue.consumer_details ?? []).map((each) => [`${each.channel_details.name} ${each.consumer_tag}`, each]));
  const rateOf = new Map((queue.deliveries ?? []).map((each) => [each.channel_details?.name, each.stats]));
  const channel = (holder) => `${holder.connection_name} (${holder.channel})`;
  const columns = [
    { title: "Client", class: "name", show: (each) => each.kind !== "client" ? html`${each.kind} <bdi>${each.id}</bdi><div class="sub">${each.user}, on ${node(each.node)}</div>` : html`<${ConnectionLink} name=${each.connection_name} title=${each.user_provided_name} /><div class="sub">${each.user}, channel ${each.channel}${each.consuming ? "" : ", cancelled"}</div>` },
    { title: "Tag", secondary: true, show: (each) => html`<bdi class="sub">${each.consumer_tag || "basic.get"}</bdi>${flags(details.get(`${channel(each)} ${each.consumer_tag}`))}` },
    { title: "Holds", show: holds },
    { title: "Oldest", number: true, show: (each) => (each.messages_unacknowledged ? lasting(each.oldest_ms) : "–") },
    { title: "Acks", number: true, secondary: true, show: (each) => html`<${Rate} value=${perSecond(rateOf.get(channel(each)), "ack")} />` },
    { title: "", class: "acts", show: (each) => each.kind !== "client" ? null : html`<button class="btn" onClick=${() => takeBack(queue, each)}>Take back…</button> <button class="btn" onClick=${() => closeHolder(each)}>Close…</button>` },
  ];
  return html`
    <div id="consumers"><${Card} title="Consumers, and who holds messages" aside=${html`<span class="sub">${counted(queue.consumers, "consumer")} attached</span>`}>
      <${Loaded} of=${holders} what="the consumers" rows=${2}>${(rows) => html`
        <${Table} rows=${rows} columns=${columns} keyOf=${(each) => `${channel(each)} ${each.consumer_tag} ${each.id}`} empty="Nobody consumes from it, and nobody holds a message of it." />`}
      <//>
    <//></div>`;
}

function flags(detail) {
  if (!detail) return null;
  const found = [detail.exclusive && "exclusive", detail.active === false && "waits", detail.arguments?.["x-priority"] !== undefined && `priority ${detail.arguments["x-priority"]}`].filter(Boolean);
  return found.length ? html`<span class="sub"> ${found.join(", ")}</span>` : null;
}

function About({ queue }) {
  return html`
    <${Card} title="Details">
      <${Facts} rows=${[
        ["Arguments", html`<${Json} value=${queue.arguments} />`],
        ["Policy", queue.policy ? html`<a href=${href("policies", queue.vhost, queue.policy)}><bdi>${queue.policy}</bdi></a>` : "none"],
        queue.operator_policy ? ["Operator policy", queue.operator_policy] : null,
        queue.policy || queue.operator_policy ? ["Policy sets", html`<${Json} value=${queue.effective_policy_definition} />`] : null,
        ["Served by", html`<${NodeLink} name=${queue.leader ?? queue.node} />`],
        queue.waits_for ? ["Waits for", node(queue.waits_for)] : null,
        queue.consumer_capacity !== undefined ? ["Consumer capacity", `${Math.round(queue.consumer_capacity * 100)} %`] : null,
        queue.delivery_limit !== undefined ? ["Delivery limit", String(queue.delivery_limit)] : null,
        ["Idle since", queue.idle_since ? clock(Date.parse(queue.idle_since)) : "it is not"],
      ]} />
    <//>`;
}

function Flows({ queue }) {
  const incoming = queue.incoming ?? [];
  const outgoing = queue.deliveries ?? [];
  if (!incoming.length && !outgoing.length) return null;
  return html`
    <div class="halves">
      <${Card} title="Comes from">
        <${Table} rows=${incoming} keyOf=${(each) => each.exchange.name} empty="Nothing was published to it." columns=${[
          { title: "Exchange", show: (each) => html`<${ExchangeLink} vhost=${each.exchange.vhost} name=${each.exchange.name} />` },
          { title: "In", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "publish")} />` },
        ]} />
      <//>
      <${Card} title="Goes to">
        <${Table} rows=${outgoing} keyOf=${(each) => each.channel_details?.name} empty="No channel took a message." columns=${[
          { title: "Channel", class: "name", show: (each) => (each.channel_details?.name ? html`<a href=${href("channels", each.channel_details.name)}><bdi>${each.channel_details.name}</bdi></a>` : "–") },
          { title: "Out", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "deliver_get")} />` },
          { title: "Acks", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "ack")} />` },
        ]} />
      <//>
    </div>`;
}
