// Messages: publish one to an exchange or a queue, and get some from a queue.

import { html, useState } from "./vendor/preact.js";
import { may, path, post } from "./api.js";
import { notify, open } from "./dialog.js";
import { Facts, Scroll } from "./elements.js";
import { bytes, count, counted, plain } from "./format.js";
import { Form, objectOf } from "./form.js";
import { followMessage } from "./message_path.js";
import { DEFAULT_EXCHANGE } from "./names.js";

const PROPERTIES = [
  ["content_type", "String", "content type"], ["content_encoding", "String", "content encoding"], ["priority", "Number", "priority"],
  ["correlation_id", "String", "correlation id"], ["reply_to", "String", "reply to"], ["expiration", "String", "expiration (ms)"],
  ["message_id", "String", "message id"], ["timestamp", "Number", "timestamp"], ["type", "String", "type"], ["app_id", "String", "app id"],
];

/** The form that publishes one message; it stays open for the next one. */
export function publish({ vhost, exchange, key }) {
  const where = exchange || DEFAULT_EXCHANGE;
  const toQueue = key !== undefined && !exchange;
  const fields = [
    { name: "routing_key", label: "Routing key", value: key ?? "", when: () => !toQueue },
    { name: "delivery_mode", label: "Delivery", type: "select", options: [["2", "Persistent"], ["1", "Transient"]] },
    { name: "payload", label: "Payload", type: "area", rows: 6 },
    { name: "encoding", label: "Payload is", type: "select", options: [["string", "text"], ["base64", "base64"]] },
    { name: "headers", label: "Headers", type: "arguments" },
    { name: "properties", label: "Properties", type: "arguments", suggest: PROPERTIES },
    { name: "follow", label: "Follow it", type: "check", hint: "and see its routes, confirm, deliveries and acknowledgements", when: () => may("monitoring") },
  ];
  const send = async (values) => {
    const properties = { ...objectOf(values.properties), delivery_mode: Number(values.delivery_mode), headers: objectOf(values.headers) };
    const { routed, message_id: id } = await post(`${path("exchanges", vhost, where)}/publish`, {
      properties, routing_key: toQueue ? key : values.routing_key, payload: values.payload, payload_encoding: values.encoding, ...(values.follow ? { follow: true } : {}),
    });
    if (values.follow) followMessage(id);
    if (!routed) throw new Error("Not routed: no queue is bound for it. The message is gone.");
    notify(toQueue ? `Published to ${key}.` : "Published; a queue has it.");
  };
  return open(toQueue ? `Publish to ${key}` : `Publish to ${exchange || "the default exchange"}`, (close) => html`
    <${Form} fields=${fields} label="Publish" cancel=${() => close()} submit=${send} />`, { wide: true });
}

const MODES = [
  ["ack_requeue_true", "Look at them: they go back into the queue, marked as redelivered"],
  ["ack_requeue_false", "Take them out of the queue"],
  ["reject_requeue_true", "Reject, and put back"],
  ["reject_requeue_false", "Reject: to the dead letter exchange, or gone"],
];

/** The form that gets messages from a queue, and shows them. */
export function getMessages({ vhost, name }) {
  return open(`Get messages from ${name}`, (close) => html`<${Getting} vhost=${vhost} name=${name} close=${close} />`, { wide: true });
}

function Getting({ vhost, name, close }) {
  const [messages, setMessages] = useState(null);
  const fields = [
    { name: "count", label: "How many", type: "number", value: "1", min: 1, required: true },
    { name: "ackmode", label: "Then", type: "select", options: MODES, hint: ({ ackmode }) => (ackmode.endsWith("false") ? "They are no longer in the queue afterwards." : "") },
    { name: "encoding", label: "Payload as", type: "select", options: [["auto", "text where it is UTF-8, else base64"], ["base64", "base64"]] },
  ];
  return html`
    <${Form} fields=${fields} label="Get" cancel=${() => close()} submit=${async (values) => {
      setMessages(await post(`${path("queues", vhost, name)}/get`, { ...values, count: Number(values.count), truncate: 50_000 }));
    }} />
    ${messages === null ? null : html`<div aria-live="polite">${messages.length === 0 ? html`<p class="empty">The queue is empty.</p>` : messages.map((message, index) => html`<${Message} key=${index} message=${message} index=${index} />`)}</div>`}`;
}

function Message({ message, index }) {
  const properties = Array.isArray(message.properties) ? {} : message.properties;
  const { headers, ...others } = properties;
  const shown = message.payload_encoding === "string" ? message.payload.length : undefined;
  return html`
    <article class="message">
      <div class="row"><b>Message ${index + 1}</b><span class="sub">${bytes(message.payload_bytes)}, ${message.payload_encoding}${message.redelivered ? ", redelivered" : ""}; ${counted(message.message_count, "message")} behind it</span></div>
      <${Scroll} tag="pre" class="body" label="payload" dir="auto">${message.payload}<//>
      ${shown !== undefined && message.payload_bytes > 50_000 ? html`<span class="sub">The first ${count(shown)} characters.</span>` : null}
      <${Facts} rows=${[
        ["exchange", message.exchange || "(default)"], ["routing key", message.routing_key],
        ...Object.entries(others).map(([key, value]) => [key, plain(value)]),
        ...Object.entries(headers ?? {}).map(([key, value]) => [`header ${key}`, plain(value)]),
      ]} />
    </article>`;
}
