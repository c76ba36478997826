// Queues and Streams: the list, and the form that declares one.

import { html } from "../vendor/preact.js";
import { path, put } from "../api.js";
import { notify, open } from "../dialog.js";
import { Rate } from "../elements.js";
import { count, node, perSecond } from "../format.js";
import { Form, objectOf } from "../form.js";
import { href, QueueLink, useVhost, within } from "../names.js";
import { Badges, QueueState, typeOf } from "../queue_facts.js";
import { Listing } from "../table.js";

const ARGUMENTS = [
  ["x-message-ttl", "Number", "Message TTL (ms)"], ["x-expires", "Number", "Expires (ms)"],
  ["x-max-length", "Number", "Max length"], ["x-max-length-bytes", "Number", "Max length bytes"],
  ["x-overflow", "String", "Overflow"], ["x-dead-letter-exchange", "String", "Dead letter exchange"],
  ["x-dead-letter-routing-key", "String", "Dead letter routing key"], ["x-single-active-consumer", "Boolean", "Single active consumer"],
];
const OF_TYPE = {
  classic: [["x-max-priority", "Number", "Max priority"], ["x-queue-mode", "String", "Mode (lazy)"]],
  quorum: [["x-delivery-limit", "Number", "Delivery limit"], ["x-dead-letter-strategy", "String", "Dead letter strategy"], ["x-quorum-initial-group-size", "Number", "Replicas"]],
  stream: [["x-max-age", "String", "Max age (7D)"], ["x-stream-max-segment-size-bytes", "Number", "Segment size"], ["x-initial-cluster-size", "Number", "Replicas"]],
};
const NOT_STREAM = new Set(["x-message-ttl", "x-expires", "x-max-length", "x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-single-active-consumer"]);

/** Arguments to offer for a type of queue. */
const suggested = (type) => [...ARGUMENTS.filter(([key]) => type !== "stream" || !NOT_STREAM.has(key)), ...(OF_TYPE[type] ?? [])];

/** The form that declares a queue. */
export function declare(vhosts, vhost) {
  const fields = [
    { name: "vhost", label: "Virtual host", type: "select", options: vhosts, value: vhost || vhosts[0], when: () => vhosts.length > 1 },
    { name: "type", label: "Type", type: "select", value: "quorum", options: [["quorum", "Quorum: replicated, confirmed when a majority has it on disk"], ["classic", "Classic: on one node, or mirrored by a policy"], ["stream", "Stream: replicated, kept when read"]] },
    { name: "name", label: "Name", required: true, autofocus: true },
    { name: "durable", label: "Durable", type: "check", value: true, when: (values) => values.type === "classic" },
    { name: "auto_delete", label: "Delete when its last consumer goes", type: "check", when: (values) => values.type === "classic" },
    { name: "arguments", label: "Arguments", type: "arguments", suggest: (values) => suggested(values.type) },
  ];
  return open("Declare a queue", (close) => html`
    <${Form} fields=${fields} label="Declare" cancel=${() => close()} submit=${async (values) => {
      await put(path("queues", values.vhost, values.name), {
        durable: values.type === "classic" ? values.durable : true,
        auto_delete: values.type === "classic" && values.auto_delete,
        arguments: { ...objectOf(values.arguments), "x-queue-type": values.type },
      });
      close();
      notify(`Declared ${values.name}.`);
      location.hash = href("queues", values.vhost, values.name);
    }} />`);
}

const STATS = "message_stats.publish_details.rate,message_stats.deliver_get_details.rate,message_stats.ack_details.rate";
const KEYS = `name,vhost,type,state,durable,auto_delete,exclusive,arguments,policy,operator_policy,effective_policy_definition,messages_ready,messages_unacknowledged,messages,consumers,node,leader,slave_nodes,members,idle_since,${STATS}`;

const COLUMNS = [
  { title: "Name", class: "name", sort: "name", show: (queue) => html`<${QueueLink} ...${queue} />` },
  { title: "Type", sort: "type", secondary: true, show: typeOf },
  { title: "Features", secondary: true, show: (queue) => html`<${Badges} queue=${queue} />` },
  { title: "State", secondary: true, sort: "state", show: (queue) => html`<${QueueState} queue=${queue} />` },
  { title: "Ready", number: true, sort: "messages_ready", show: (queue) => count(queue.messages_ready) },
  { title: "Unacked", number: true, sort: "messages_unacknowledged", hint: "delivered and not acknowledged", show: (queue) => count(queue.messages_unacknowledged) },
  { title: "In", number: true, secondary: true, sort: "message_stats.publish_details.rate", show: (queue) => html`<${Rate} value=${perSecond(queue.message_stats, "publish")} />` },
  { title: "Out", number: true, secondary: true, sort: "message_stats.deliver_get_details.rate", show: (queue) => html`<${Rate} value=${perSecond(queue.message_stats, "deliver_get")} />` },
  { title: "Consumers", number: true, secondary: true, sort: "consumers", show: (queue) => count(queue.consumers) },
  { title: "Leader", secondary: true, class: "keep", sort: "node", show: (queue) => html`<span class="sub" title=${queue.leader}>${node(queue.leader ?? queue.node)}${copies(queue)}</span>` },
];
const VHOST = { title: "Virtual host", sort: "vhost", secondary: true, show: (queue) => html`<bdi>${queue.vhost}</bdi>` };

function copies(queue) {
  const others = (queue.members?.length ?? 1) - 1 || queue.slave_nodes?.length || 0;
  return others > 0 ? ` +${others}` : "";
}

export function Queues() {
  const [vhost, choice, vhosts] = useVhost();
  const columns = vhost === "" && vhosts.length > 1 ? [COLUMNS[0], VHOST, ...COLUMNS.slice(1)] : COLUMNS;
  return html`
    <div class="row"><h1>Queues and Streams</h1><span class="grow"></span><button class="btn p" disabled=${!vhosts.length} onClick=${() => declare(vhosts, vhost)}>Declare a queue</button></div>
    <${Listing} id="queues" path=${within("queues", vhost)} columns=${columns} keys=${KEYS} keyOf=${(queue) => `${queue.vhost}/${queue.name}`}
      what="the queues" order=${["messages_ready", true]} empty="No queue yet. Declare one, or start a client that does." aside=${choice} />`;
}
