// The cluster as a picture: nodes, what they lead, their links; and as a timeline of what happened to it.

import { html, useState } from "./vendor/preact.js";
import { may, useAsked, useNow } from "./api.js";
import { Card, Choice, Scroll } from "./elements.js";
import { clock, count, counted, lasting, node as short } from "./format.js";
import { href } from "./names.js";
import { Table } from "./table.js";

const PICTURE_MS = 3_000;
const TIMELINE_MS = 5_000;
const EVENTS_MAX = 200;
const HOUR = 3_600_000;
const RANGES = [[HOUR, "1 h"], [24 * HOUR, "24 h"], [7 * 24 * HOUR, "7 d"]];
const WIDTH = 640;
const HEIGHT = 280;
const RADIUS = 40;

/** Nodes in a circle, the first on top; two lie side by side. */
function places(nodes) {
  const by = nodes.length === 2 ? Math.PI : -Math.PI / 2;
  const few = nodes.length < 2;
  return new Map(nodes.map((each, index) => {
    const angle = by + (index * 2 * Math.PI) / nodes.length;
    return [each.name, few ? [WIDTH / 2, HEIGHT / 2] : [WIDTH / 2 + Math.cos(angle) * 220, HEIGHT / 2 + Math.sin(angle) * 94]];
  }));
}

/** Both directions of each pair of nodes as one line. */
function pairs(nodes) {
  const found = [];
  nodes.forEach((one, index) => {
    for (const other of nodes.slice(index + 1)) {
      const ways = [(one.links ?? []).find((each) => each.to === other.name), (other.links ?? []).find((each) => each.to === one.name)].filter(Boolean);
      const isUp = ways.length > 0 && ways.every((each) => each.verdict === "up");
      const latencies = ways.map((each) => each.latency_ms).filter(Number.isFinite);
      found.push({ one, other, isUp, isSplit: !isUp && one.answers && other.answers, latency: latencies.length ? Math.max(...latencies) : null });
    }
  });
  return found;
}

const ms = (latency) => `${latency < 10 ? latency.toFixed(1) : Math.round(latency)} ms`;
const linkWords = (link) => (link.isUp ? (link.latency === null ? "linked" : ms(link.latency)) : link.isSplit ? "do not hear each other" : "no link");

export function Picture() {
  const { value } = useAsked("/cluster/picture", PICTURE_MS);
  const nodes = value?.nodes ?? [];
  if (nodes.length < 2) return null;
  const at = places(nodes);
  const links = pairs(nodes);
  const words = [...nodes.map((each) => (each.answers ? `${short(each.name)} leads ${counted(each.leads, "queue")}` : `${short(each.name)} does not answer`)), ...links.map((link) => `${short(link.one.name)} and ${short(link.other.name)}: ${linkWords(link)}`)];
  return html`
    <${Card} title="Nodes and links" aside=${html`<span class="sub">latency: question and answer on the link</span>`}>
      <svg class="picture" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${words.join("; ")}>
        ${links.map((link) => {
          const [x1, y1] = at.get(link.one.name);
          const [x2, y2] = at.get(link.other.name);
          return html`
            <g key=${`${link.one.name} ${link.other.name}`}>
              <line class=${link.isUp ? "up" : link.isSplit ? "split" : "away"} x1=${x1} y1=${y1} x2=${x2} y2=${y2} />
              <text class="latency" x=${(x1 + x2) / 2} y=${(y1 + y2) / 2 - 7}>${linkWords(link)}</text>
            </g>`;
        })}
        ${nodes.map((each) => {
          const [x, y] = at.get(each.name);
          return html`
            <a key=${each.name} href=${href("nodes", each.name)}>
              <circle class=${each.answers ? (each.leads_metadata ? "first" : "up") : "away"} cx=${x} cy=${y} r=${RADIUS} />
              <text class="name" x=${x} y=${y - 6}>${short(each.name)}</text>
              <text x=${x} y=${y + 12}>${each.answers ? `leads ${count(each.leads)}` : "away"}</text>
            </a>`;
        })}
      </svg>
      <p class="sub">${nodes.filter((each) => each.answers).map((each) => `${short(each.name)}: leads ${count(each.leads)}, has a copy of ${count(each.follows)}, alone ${count(each.alone)}`).join(" · ")}</p>
    <//>`;
}

const LEVELS = { "node.down": "bad", "link.lost": "bad", "alarm.set": "bad", "queue.leader": "warn", "metadata.leader": "warn", "maintenance.begun": "warn", "copy.added": "ok", "copy.removed": "warn", "node.forgotten": "warn" };
const BEGINS = { "node.down": ["down", "node.up"], "alarm.set": ["alarm", "alarm.cleared"], "link.lost": ["deaf", "link.back"], "maintenance.begun": ["rest", "maintenance.ended"] };

const SWATCHES = [["down", "down"], ["alarm", "alarm"], ["deaf", "hears nothing from another"], ["rest", "maintenance"], ["moved", "began to lead"]];

/** From when to when a node was down, short of something, deaf to another, or in maintenance. */
function spans(name, events, from, now) {
  const found = [];
  const open = new Map();
  for (const each of [...events].reverse().filter((event) => event.node === name)) {
    const begins = BEGINS[each.kind];
    if (begins) open.set(`${begins[1]} ${each.other}`, { at: each.at_ms, kind: begins[0], text: each.text });
    const span = open.get(`${each.kind} ${each.other}`);
    if (span) {
      found.push({ ...span, to: each.at_ms });
      open.delete(`${each.kind} ${each.other}`);
    }
    if (each.kind === "node.up") for (const key of [...open.keys()].filter((one) => !one.startsWith("node."))) open.delete(key);
  }
  for (const span of open.values()) found.push({ ...span, to: now });
  return found.filter((span) => span.to > from);
}

function Lane({ name, events, from, now }) {
  const x = (at) => Math.max(0, Math.min(1000, ((at - from) / (now - from)) * 1000));
  const shown = spans(name, events, from, now);
  const failovers = events.filter((each) => each.node === name && (each.kind === "queue.leader" || each.kind === "metadata.leader"));
  const words = [...shown.map((span) => `${span.text} for ${lasting(span.to - span.at)}`), ...failovers.map((each) => each.text)];
  return html`
    <div class="lane"><span class="lane-name">${short(name)}</span>
      <svg viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" aria-label=${words.length ? words.join("; ") : `${short(name)}: nothing happened`}>
        <rect class="runs" x="0" y="3" width="1000" height="8" />
        ${shown.map((span) => html`<rect key=${`${span.kind}${span.at}`} class=${span.kind} x=${x(span.at)} y="3" width=${Math.max(3, x(span.to) - x(span.at))} height="8"><title>${span.text}, ${clock(span.at)}, for ${lasting(span.to - span.at)}</title></rect>`)}
        ${failovers.map((each) => html`<rect key=${`${each.at_ms}${each.text}`} class="moved" x=${x(each.at_ms) - 1} y="0" width="3" height="14"><title>${each.text}, ${clock(each.at_ms)}</title></rect>`)}
      </svg></div>`;
}

export function Timeline({ nodes }) {
  const [range, setRange] = useState(24 * HOUR);
  const now = useNow();
  const { value, error } = useAsked(may("monitoring") ? `/timeline?limit=${EVENTS_MAX}` : null, TIMELINE_MS);
  if (!value) return error ? html`<${Card} title="What happened"><p class="empty">${error.message}</p><//>` : null;
  const from = now - range;
  const events = value.events.filter((each) => each.at_ms >= from);
  return html`
    <${Card} title="What happened" class="timeline" aside=${html`<${Choice} label="Range" value=${range} onChange=${setRange} options=${RANGES} />`}>
      ${nodes.map((each) => html`<${Lane} key=${each.name} name=${each.name} events=${value.events} from=${from} now=${now} />`)}
      <div class="lane sub"><span class="lane-name"></span><span class="grow">${lasting(range)} ago</span><span>now</span></div>
      <p class="sub">${SWATCHES.map(([kind, words]) => html`<span class="swatch" key=${kind}><i class=${kind}></i> ${words}</span> `)}</p>
      ${value.missing_nodes.length ? html`<p class="sub">The notes of ${value.missing_nodes.map(short).join(", ")} are missing: no answer.</p>` : null}
      <${Scroll} class="events" label="events">
        <${Table} rows=${events} keyOf=${(each) => `${each.at_ms} ${each.text}`} empty=${`Nothing in ${lasting(range)}.`} columns=${[
          { title: "When", show: (each) => html`<span class="sub">${clock(each.at_ms)}</span>` },
          { title: "What", show: (each) => html`<span class=${`dot ${LEVELS[each.kind] ?? "ok"}`} aria-hidden="true"></span> ${each.count === 1 && each.vhost ? html`<a href=${href("queues", each.vhost, each.queues[0])}><bdi>${each.text}</bdi></a>` : html`<bdi>${each.text}</bdi>`}` },
          { title: "Seen by", secondary: true, show: (each) => html`<span class="sub">${each.seen_by.map(short).join(", ")}</span>` },
        ]} />
      <//>
    <//>`;
}

/** What happened to a queue since some time, for the marks of its charts. */
export function useHappenings(queue, age) {
  const where = may("monitoring") ? `/timeline?${new URLSearchParams({ vhost: queue.vhost, queue: queue.name, limit: 20 })}` : null;
  const { value } = useAsked(where, 2 * TIMELINE_MS);
  return (value?.events ?? []).filter((each) => each.at_ms >= Date.now() - age * 1000).map((each) => ({ at: each.at_ms, text: each.text })).reverse();
}
