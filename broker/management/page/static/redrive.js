// Dead letters of a queue: groups of them, a dry run of sending them back, and how far that is.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { may, path, post, remove, useAsked, useLive } from "./api.js";
import { act, notify, open } from "./dialog.js";
import { Bar, Card, Loaded } from "./elements.js";
import { clock, count, counted, lasting, node } from "./format.js";
import { Form } from "./form.js";
import { ExchangeLink, QueueLink } from "./names.js";
import { Table } from "./table.js";

const PROBED = 5; // messages looked at to know whether there are dead letters at all
const LOOKED = 1_000;
const EVERY = 50_000; // the most that the API looks at
const AGAIN_MS = 15_000;
const OTHERS = "(others)"; // exceptions that are not told apart
const REMEMBERED_MS = 600_000; // a redrive that ended stays on the page for so long

/** Redrives of a queue and its dead letters; nothing where there are none. */
export function DeadLetters({ queue, where }) {
  const probe = useLive(queue.type === "stream" || !queue.messages_ready ? null : `${where}/dead-letters?count=${PROBED}`);
  const redrives = useLive(queue.type === "stream" ? null : "/redrives");
  const now = Date.now();
  const own = (redrives.value ?? []).filter((each) => each.queue === queue.name && each.vhost === queue.vhost);
  const shown = own.filter((each) => each.state === "running" || now - each.ended < REMEMBERED_MS).slice(0, 3);
  const has = !probe.error && probe.value?.groups.length > 0;
  if (!has && !shown.length) return null;
  return html`
    ${shown.map((each) => html`<${Progress} key=${each.id} redrive=${each} />`)}
    ${has ? html`<${Groups} queue=${queue} where=${where} turn=${own.map((each) => each.state).join()} />` : null}`;
}

/** The same for a queue whose first messages are no dead letters: all are looked at. */
export function lookForDeadLetters(queue) {
  const where = path("queues", queue.vhost, queue.name);
  return open(`Dead letters in ${queue.name}`, () => html`<${Groups} queue=${queue} where=${where} all />`, { wide: true });
}

const LEVELS = { running: "ok", done: "ok", stopped: "warn", failed: "bad" };

function Progress({ redrive }) {
  const stay = redrive.kept.reduce((sum, each) => sum + each.messages, 0);
  const rate = redrive.rate ? `, at most ${count(redrive.rate)}/s` : "";
  const title = redrive.state === "running" ? `Sending dead letters back to ${aim(redrive.target)}` : `Sent dead letters back to ${aim(redrive.target)}: ${redrive.state}`;
  return html`
    <div class=${`card why ${LEVELS[redrive.state] ?? "warn"}`} role="status">
      <span class=${`dot ${LEVELS[redrive.state] ?? "warn"}`} aria-hidden="true"></span>
      <div class="grow"><b>${title}</b>
        <${Bar} share=${redrive.total ? (redrive.sent + stay) / redrive.total : 0} words=${`${count(redrive.sent)} of ${count(redrive.total)} sent${stay ? `, ${count(stay)} stay` : ""}`} />
        ${stay ? html`<div class="sub">${staying(redrive.kept, "stay")}</div>` : null}
        <div class="sub">${redrive.text ? `${redrive.text}. ` : ""}By ${redrive.user} on ${node(redrive.node)}${rate}${redrive.takeovers ? `, taken over ${counted(redrive.takeovers, "time")}` : ""}${redrive.doubted ? `; ${counted(redrive.doubted, "message")} may come twice` : ""}.</div>
      </div>
      ${redrive.state === "running" && may("policymaker") ? html`<button class="btn" onClick=${() => act("Stopping; what is under way arrives.", () => remove(path("redrives", redrive.id)))}>Stop</button>` : null}
    </div>`;
}

const staying = (kept, verb) => kept.map((each) => `${count(each.messages)} ${verb}: they ${each.text}`).join("; ");

/** Where a target is, in words. */
function aim(target) {
  if (target.to === "queue") return `queue ${target.queue}`;
  if (target.to === "exchange") return `exchange ${target.exchange || "(default)"}`;
  return target.to === "death_queue" ? "the queue they died in" : "where they were published to";
}

function Groups({ queue, where, turn, all = false }) {
  const [most, setMost] = useState(all ? EVERY : LOOKED);
  const asked = useAsked(`${where}/dead-letters?count=${most}${turn ? `&turn=${encodeURIComponent(turn)}` : ""}`, most === LOOKED ? AGAIN_MS : 0);
  const send = (group) => sendBack(queue, group).then(asked.again);
  const found = asked.value;
  const hasExceptions = found?.groups.some((each) => each.exception);
  const columns = [
    { title: "Reason", show: (each) => html`<bdi>${each.reason}</bdi>`, by: (each) => each.reason },
    { title: "Died in", class: "name", show: (each) => html`<${QueueLink} vhost=${queue.vhost} name=${each.queue} />`, by: (each) => each.queue },
    { title: "Published to", class: "name", secondary: true, show: (each) => (each.exchange === null ? html`<span class="sub">not said</span>` : html`<${ExchangeLink} vhost=${queue.vhost} name=${each.exchange} /><div class="sub"><bdi>${keysOf(each)}</bdi></div>`), by: (each) => each.exchange },
    ...(hasExceptions ? [{ title: "Exception", class: "name", show: (each) => html`<bdi>${each.exception ?? "–"}</bdi>`, by: (each) => each.exception ?? "" }] : []),
    { title: "Messages", number: true, show: (each) => count(each.messages), by: (each) => each.messages },
    { title: "First died", number: true, secondary: true, show: when, by: (each) => each.first_seen ?? 0 },
    { title: "Sent back", number: true, secondary: true, show: (each) => (each.redrives ? `${count(each.redrives)}×` : "never"), by: (each) => each.redrives },
    ...(may("policymaker") ? [{ title: "", class: "acts", show: (each) => (each.exception === OTHERS ? null : html`<button class="btn" onClick=${() => send(each)}>Send back…</button>`) }] : []),
  ];
  const part = found && found.next !== null ? `the first ${count(found.looked)} of ${counted(found.messages, "message")}` : null;
  const others = found?.others ? `${counted(found.others, "message")} of others` : null;
  const said = [part, others].filter(Boolean).join(", ");
  const aside = html`<span class="sub">${said}</span>
    ${part && most < EVERY ? html`<button class="btn" onClick=${() => setMost(EVERY)}>Look at more</button>` : null}
    ${found?.groups.length && may("policymaker") ? html`<button class="btn p" onClick=${() => send(null)}>Send all back…</button>` : null}`;
  return html`
    <${Card} title="Dead letters" aside=${aside}>
      <${Loaded} of=${asked} what="the dead letters" rows=${2}>${(value) => html`
        <${Table} rows=${value.groups} columns=${columns} order=${["Messages", true]} keyOf=${(each) => `${each.reason} ${each.queue} ${each.exchange} ${each.exception}`} empty="No message here has died." />`}
      <//>
    <//>`;
}

const keysOf = (group) => (group.routing_keys.length ? `key ${group.routing_keys.join(", ")}${group.routing_keys.length > 1 ? ", …" : ""}` : "");

function when(group) {
  if (group.first_seen === null) return "–";
  const last = group.last_seen > group.first_seen ? ` to ${clock(group.last_seen)}` : "";
  return html`<span title=${`${clock(group.first_seen)}${last}`}>${lasting(Math.max(1000, Date.now() - group.first_seen))} ago</span>`;
}

/** The dialog that sends a group back, or all; it shows first what would go where. */
export function sendBack(queue, group) {
  const what = group ? `${group.reason} in ${group.queue}${group.exception ? `, ${group.exception}` : ""}` : `all of ${queue.name}`;
  return open(`Send dead letters back: ${what}`, (close) => html`<${Sending} queue=${queue} group=${group} close=${close} />`, { wide: true });
}

const TARGETS = [
  ["origin", "Where they were published to: exchange and routing keys"],
  ["death_queue", "Straight into the queue they died in"],
  ["queue", "Another queue"],
  ["exchange", "An exchange"],
];

const FIELDS = [
  { name: "to", label: "Send them to", type: "select", options: TARGETS, hint: ({ to }) => (to === "origin" ? "As the publisher did: all queues that are bound for it get them." : "") },
  { name: "queue", label: "Queue", required: true, when: ({ to }) => to === "queue" },
  { name: "exchange", label: "Exchange", when: ({ to }) => to === "exchange", hint: "Empty: the default exchange." },
  { name: "routing_key", label: "Routing key", when: ({ to }) => to === "exchange", hint: "Empty: each with its own." },
  { name: "seen_from_ms", label: "Died first since", type: "datetime-local" },
  { name: "seen_until_ms", label: "Died first before", type: "datetime-local" },
  { name: "count", label: "At most", type: "number", min: 1, placeholder: "all", hint: "So many, from the head of the queue." },
  { name: "rate", label: "Messages a second", type: "number", min: 1, placeholder: "no limit" },
  { name: "max_redrives", label: "Only if sent back fewer times than", type: "number", min: 1, placeholder: "any" },
];

/** The request for what a form says. */
function asked(values, group) {
  const target = { to: values.to };
  if (values.to === "queue") target.queue = values.queue;
  if (values.to === "exchange") {
    target.exchange = values.exchange;
    if (values.routing_key) target.routing_key = values.routing_key;
  }
  const selection = group ? { reason: group.reason, queue: group.queue } : {};
  if (group && group.exchange !== null) selection.exchange = group.exchange;
  if (group) selection.exception = group.exception ?? ""; // "": those that name none
  for (const key of ["count", "max_redrives"]) if (values[key]) selection[key] = Number(values[key]);
  for (const key of ["seen_from_ms", "seen_until_ms"]) if (values[key]) selection[key] = new Date(values[key]).getTime();
  return { selection, target, ...(values.rate ? { rate: Number(values.rate) } : {}) };
}

function Sending({ queue, group, close }) {
  const [plan, setPlan] = useState(null);
  const where = `${path("queues", queue.vhost, queue.name)}/redrive`;
  const dry = async (values) => {
    const request = asked(values, group);
    setPlan(null);
    setPlan({ request, found: await post(where, { ...request, dry_run: true }) });
  };
  return html`
    <${Form} fields=${FIELDS} label="Dry run" cancel=${() => close()} submit=${dry} />
    ${plan === null ? null : html`<${Plan} plan=${plan} start=${() => begin(where, plan.request, close)} />`}`;
}

async function begin(where, request, close) {
  try {
    await post(where, request);
    close(true);
    notify("Sending dead letters back has begun.");
  } catch (error) {
    notify(error.message, { failed: true });
  }
}

function Plan({ plan, start }) {
  const { found } = plan;
  const section = useRef(null);
  useEffect(() => section.current.scrollIntoView({ block: "nearest" }), [plan]); // with its button, on a low screen
  const limited = found.at_delivery_limit ? html`<p class="problem" role="alert">${counted(found.at_delivery_limit, "message")} came back as often as the queue's delivery limit of ${found.delivery_limit} allows: raise the limit first.</p>` : null;
  return html`
    <section ref=${section} class="plan" aria-label="Dry run" aria-live="polite">
      <p><b>${counted(found.would_send, "message")} would go back.</b>${found.kept.length ? html` <span class="sub">${staying(found.kept, "would stay")}.</span>` : null}${found.complete ? null : html` <span class="sub">${count(found.looked)} of ${counted(found.messages, "message")} were looked at.</span>`}</p>
      ${found.targets.length ? html`<${Table} rows=${found.targets} keyOf=${(each) => `${each.exchange} ${each.routing_key}`} columns=${[
        { title: "Exchange and key", class: "name", show: (each) => html`<bdi>${each.exchange || "(default)"}</bdi><div class="sub"><bdi>${each.routing_key}</bdi></div>` },
        { title: "Into", class: "name", show: (each) => html`<bdi>${each.queues.join(", ")}</bdi>` },
        { title: "Messages", number: true, show: (each) => count(each.messages) },
      ]} />` : null}
      ${limited}
      <div class="row end"><button class="btn p" disabled=${!found.would_send} onClick=${start}>Send ${counted(found.would_send, "message")} back</button></div>
    </section>`;
}
