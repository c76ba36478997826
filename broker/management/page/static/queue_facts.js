// What a queue's object says: its badges, its state in a word, where its copies are and how far behind. Pure.

import { html } from "./vendor/preact.js";
import { Badge, State } from "./elements.js";

const KEYS = {
  TTL: ["x-message-ttl", "message-ttl"],
  Exp: ["x-expires", "expires"],
  DLX: ["x-dead-letter-exchange", "dead-letter-exchange"],
  DLK: ["x-dead-letter-routing-key", "dead-letter-routing-key"],
  Pri: ["x-max-priority"],
  Lim: ["x-max-length", "max-length", "x-max-length-bytes", "max-length-bytes"],
  SAC: ["x-single-active-consumer"],
};
const TITLES = {
  TTL: "message TTL", Exp: "expires when unused", DLX: "dead letter exchange", DLK: "dead letter routing key",
  Pri: "priorities", Lim: "limit of length", SAC: "single active consumer",
};

/** The type of a queue as one reads it: "quorum", "stream", "classic", "mirrored". */
export function typeOf(queue) {
  if (queue.type === "classic" && queue.slave_nodes?.length) return "mirrored";
  return queue.type;
}

/** Badges of a queue as pairs of text and meaning, as in RabbitMQ: D TTL DLX DLK Pri Lim Args, policy. */
export function badges(queue) {
  const policy = queue.effective_policy_definition ?? {};
  const found = [];
  if (queue.durable) found.push(["D", "durable"]);
  if (queue.auto_delete) found.push(["AD", "auto-delete"]);
  if (queue.exclusive) found.push(["Excl", "exclusive"]);
  const known = new Set(["x-queue-type"]);
  for (const [badge, keys] of Object.entries(KEYS)) {
    for (const key of keys) known.add(key);
    const key = keys.find((each) => queue.arguments?.[each] !== undefined || policy[each] !== undefined);
    if (key) found.push([badge, `${TITLES[badge]}: ${queue.arguments?.[key] ?? policy[key]}`]);
  }
  const rest = Object.keys(queue.arguments ?? {}).filter((key) => !known.has(key));
  if (rest.length) found.push(["Args", rest.map((key) => `${key}: ${JSON.stringify(queue.arguments[key])}`).join(", ")]);
  return found;
}

/** The badges of a queue; `whole` with its type and policies. */
export function Badges({ queue, whole }) {
  return html`<span class="badges">
    ${whole ? html`<${Badge} text=${typeOf(queue)} title="type" />` : null}
    ${badges(queue).map(([text, title]) => html`<${Badge} key=${text} text=${text} title=${title} />`)}
    ${queue.policy ? html`<${Badge} text=${whole ? `policy: ${queue.policy}` : queue.policy} title=${`policy ${queue.policy}`} />` : null}
    ${queue.operator_policy ? html`<${Badge} text=${`operator policy: ${queue.operator_policy}`} title="operator policy" />` : null}
  </span>`;
}

const LEVELS = { running: "ok", idle: "ok", flow: "warn", syncing: "warn", promoting: "warn", minority: "bad", down: "bad", stopped: "bad" };

const IDLE_MS = 15_000;

/** The state of a queue in a word. */
export function QueueState({ queue }) {
  const state = queue.state ?? "unknown";
  const idle = state === "running" && Date.now() - Date.parse(queue.idle_since) > IDLE_MS;
  return html`<${State} level=${LEVELS[state] ?? "off"}>${idle ? "idle" : state}<//>`;
}

const LAG = 100; // entries: members are asked one after another, and go on meanwhile

/**
 * Members of a queue: `{node, role, number, words, level, isLeader}`.
 *
 * status: the rows of GET /api/queues/quorum/V/Q/status or /api/streams/V/Q/status, as far as they are known.
 */
export function members(queue, status) {
  if (queue.type === "quorum") return quorumMembers(queue, status);
  if (queue.type === "stream") return streamMembers(queue, status);
  const mirrors = queue.slave_nodes ?? [];
  const synced = new Set(queue.synchronised_slave_nodes ?? []);
  const master = queue.node ? [{ node: queue.node, role: mirrors.length ? "master" : "the only copy", isLeader: true, level: queue.state === "down" ? "bad" : "ok", words: queue.state === "down" ? "down" : "", number: queue.messages }] : [];
  return [...master, ...mirrors.map((node) => ({
    node, role: "mirror", isLeader: false, level: synced.has(node) ? "ok" : "warn",
    words: synced.has(node) ? "in step" : queue.sync_messages === undefined ? "not synchronised" : "synchronising",
  }))];
}

function quorumMembers(queue, status) {
  const rows = new Map((status ?? []).map((row) => [row["Node Name"], row]));
  const online = new Set(queue.online ?? []);
  const newest = Number(rows.get(queue.leader)?.["Last Log Index"]);
  return (queue.members ?? []).map((node) => {
    const row = rows.get(node);
    const index = Number(row?.["Last Log Index"]);
    const isLeader = node === queue.leader;
    const behind = newest - index;
    const isAway = !online.has(node) || row?.["Raft State"] === "noproc";
    const voter = row?.Membership && row.Membership !== "voter" ? `, ${row.Membership}` : "";
    return {
      node, isLeader, role: isLeader ? "leader" : "",
      number: Number.isFinite(index) ? index : undefined,
      level: isAway ? "bad" : behind > LAG || voter ? "warn" : "ok",
      words: isAway ? "does not answer" : isLeader ? `term ${row?.Term ?? "–"}` : Number.isFinite(behind) ? `${behind > 0 ? `${behind.toLocaleString("en")} behind` : "in step"}${voter}` : "",
    };
  });
}

function streamMembers(queue, status) {
  const rows = new Map((status ?? []).map((row) => [row.node, row]));
  const online = new Set(queue.online ?? []);
  const newest = rows.get(queue.leader)?.offset;
  return (queue.members ?? []).map((node) => {
    const row = rows.get(node);
    const isLeader = node === queue.leader;
    const behind = newest - row?.offset;
    const isAway = !online.has(node);
    return {
      node, isLeader, role: isLeader ? "leader" : "replica", number: row?.offset >= 0 ? row.offset : undefined,
      level: isAway ? "bad" : behind > LAG ? "warn" : "ok",
      words: isAway ? "does not answer" : isLeader ? `${row?.readers ?? 0} readers` : Number.isFinite(behind) ? (behind > 0 ? `${behind.toLocaleString("en")} behind` : "in step") : "",
    };
  });
}
