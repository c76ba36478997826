// Bindings of a queue or an exchange: the list, bind and unbind.

import { html } from "./vendor/preact.js";
import { path, post, remove, useLive } from "./api.js";
import { act, confirm, notify, open } from "./dialog.js";
import { Card, Json, Loaded } from "./elements.js";
import { counted } from "./format.js";
import { Form, objectOf } from "./form.js";
import { DEFAULT_EXCHANGE, ExchangeLink, QueueLink } from "./names.js";
import { Table } from "./table.js";

const between = (binding) => path("bindings", binding.vhost, "e", binding.source || DEFAULT_EXCHANGE, binding.destination_type === "queue" ? "q" : "e", binding.destination);

async function unbind(binding) {
  const from = binding.source || "the default exchange";
  const sure = await confirm(`Unbind ${binding.destination} from ${from}?`, `What is published to ${from} with the key “${binding.routing_key}” no longer goes to ${binding.destination} by this binding. Messages that are there stay.`, "Unbind");
  if (sure) await act(`Unbound ${binding.destination} from ${from}.`, () => remove(`${between(binding)}${path(binding.properties_key)}`));
}

function bind(vhost, fixed) {
  const fields = [
    { name: "source", label: "From exchange", required: true, autofocus: true, when: () => fixed.source === undefined },
    { name: "kind", label: "To", type: "select", options: [["q", "queue or stream"], ["e", "exchange"]], when: () => fixed.destination === undefined },
    { name: "destination", label: "Name", required: true, when: () => fixed.destination === undefined },
    { name: "routing_key", label: "Routing key" },
    { name: "arguments", label: "Arguments", type: "arguments", suggest: [["x-match", "String", "x-match (headers)"]] },
  ];
  return open(fixed.source === undefined ? `Bind ${fixed.destination}` : `Bind from ${fixed.source}`, (close) => html`
    <${Form} fields=${fields} label="Bind" cancel=${() => close()} submit=${async (values) => {
      const { source, kind, destination } = { ...values, ...fixed };
      await post(path("bindings", vhost, "e", source, kind, destination), { routing_key: values.routing_key, arguments: objectOf(values.arguments) });
      close();
      notify(`Bound ${destination} to ${source}.`);
    }} />`);
}

/** Columns of bindings; the end that is the page's own is left out. */
function columns(end) {
  return [
    end === "destination" ? { title: "From", by: (each) => each.source, show: (each) => html`<${ExchangeLink} vhost=${each.vhost} name=${each.source} />` }
      : { title: "To", by: (each) => each.destination, show: (each) => (each.destination_type === "queue" ? html`<${QueueLink} vhost=${each.vhost} name=${each.destination} />` : html`<${ExchangeLink} vhost=${each.vhost} name=${each.destination} /> <span class="sub">exchange</span>`) },
    { title: "Routing key", by: (each) => each.routing_key, show: (each) => html`<bdi class="mono">${each.routing_key}</bdi>` },
    { title: "Arguments", secondary: true, show: (each) => html`<${Json} value=${each.arguments} none="" />` },
    { title: "", class: "acts", show: (each) => (each.source === "" ? html`<span class="sub">implicit</span>` : html`<button class="btn" onClick=${() => unbind(each)}>Unbind</button>`) },
  ];
}

/** The bindings at one end: of a queue, or of an exchange as "source" or "destination". */
export function Bindings({ vhost, name, kind, end = "destination", title = "Bindings" }) {
  const where = kind === "queue" ? `${path("queues", vhost, name)}/bindings` : `${path("exchanges", vhost, name || DEFAULT_EXCHANGE)}/bindings/${end}`;
  const live = useLive(where);
  const fixed = end === "source" ? { source: name } : { kind: kind === "queue" ? "q" : "e", destination: name };
  return html`
    <${Card} title=${title} aside=${html`${live.value ? html`<span class="sub">${counted(live.value.length, "binding")}</span>` : null}${name === "" ? null : html`<button class="btn small" onClick=${() => bind(vhost, fixed)}>Bind…</button>`}`}>
      <${Loaded} of=${live} what="the bindings" rows=${2}>${(rows) => html`
        <${Table} rows=${rows} columns=${columns(end)} keyOf=${(each) => `${each.source}/${each.destination}/${each.properties_key}`} empty="No binding." />`}
      <//>
    <//>`;
}
