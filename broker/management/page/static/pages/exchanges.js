// Exchanges: the list, the form that declares one, and one with its bindings, delayed messages and a message to publish.

import { html } from "../vendor/preact.js";
import { path, put, remove, useAsked, useLive } from "../api.js";
import { Bindings } from "../bindings.js";
import { Chart, rates, usePast } from "../charts.js";
import { act, confirm, notify, open } from "../dialog.js";
import { Badge, Card, Facts, Json, Loaded, Menu, Rate } from "../elements.js";
import { clock, count, counted, perSecond } from "../format.js";
import { Form, objectOf } from "../form.js";
import { publish } from "../messages.js";
import { ChannelLink, DEFAULT_EXCHANGE, ExchangeLink, href, QueueLink, useVhost, within } from "../names.js";
import { Listing, Table } from "../table.js";

function Badges({ of }) {
  const found = [of.durable && ["D", "durable"], of.auto_delete && ["AD", "auto-delete"], of.internal && ["I", "internal: clients can't publish to it"], of.arguments?.["alternate-exchange"] && ["AE", `alternate exchange: ${of.arguments["alternate-exchange"]}`]].filter(Boolean);
  const rest = Object.keys(of.arguments ?? {}).filter((key) => key !== "alternate-exchange");
  if (rest.length) found.push(["Args", rest.map((key) => `${key}: ${JSON.stringify(of.arguments[key])}`).join(", ")]);
  return html`<span class="badges">${found.map(([text, title]) => html`<${Badge} key=${text} text=${text} title=${title} />`)}${of.policy ? html`<${Badge} text=${of.policy} title=${`policy ${of.policy}`} />` : null}</span>`;
}

const COLUMNS = [
  { title: "Name", class: "name", sort: "name", show: (each) => html`<${ExchangeLink} ...${each} />` },
  { title: "Virtual host", secondary: true, sort: "vhost", show: (each) => html`<bdi>${each.vhost}</bdi>` },
  { title: "Type", sort: "type", show: (each) => each.type },
  { title: "Features", secondary: true, show: (each) => html`<${Badges} of=${each} />` },
  { title: "In", number: true, sort: "message_stats.publish_in_details.rate", show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "publish_in")} />` },
  { title: "Out", number: true, sort: "message_stats.publish_out_details.rate", show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "publish_out")} />` },
];

function declare(vhosts, vhost, types) {
  const fields = [
    { name: "vhost", label: "Virtual host", type: "select", options: vhosts, value: vhost || vhosts[0], when: () => vhosts.length > 1 },
    { name: "name", label: "Name", required: true, autofocus: true },
    { name: "type", label: "Type", type: "select", options: types.map((each) => each.name), value: "direct" },
    { name: "durable", label: "Durable", type: "check", value: true },
    { name: "auto_delete", label: "Delete when its last binding goes", type: "check" },
    { name: "internal", label: "Internal: clients can't publish to it", type: "check" },
    { name: "arguments", label: "Arguments", type: "arguments", suggest: (values) => [["alternate-exchange", "String", "Alternate exchange"], ...(values.type === "x-delayed-message" ? [["x-delayed-type", "String", "Delayed type"]] : [])] },
  ];
  return open("Declare an exchange", (close) => html`
    <${Form} fields=${fields} label="Declare" cancel=${() => close()} submit=${async ({ vhost: place, name, arguments: rows, ...values }) => {
      await put(path("exchanges", place, name), { ...values, arguments: objectOf(rows) });
      close();
      notify(`Declared ${name}.`);
      location.hash = href("exchanges", place, name);
    }} />`);
}

export function Exchanges() {
  const [vhost, choice, vhosts] = useVhost();
  const types = useAsked("/overview?columns=exchange_types").value?.exchange_types ?? [];
  return html`
    <div class="row"><h1>Exchanges</h1><span class="grow"></span><button class="btn p" disabled=${!vhosts.length || !types.length} onClick=${() => declare(vhosts, vhost, types)}>Declare an exchange</button></div>
    <${Listing} id="exchanges" path=${within("exchanges", vhost)} columns=${COLUMNS} keyOf=${(each) => `${each.vhost}/${each.name}`}
      what="the exchanges" order=${["message_stats.publish_in_details.rate", true]} empty="No exchange." aside=${choice} />`;
}

async function destroy(exchange) {
  const sure = await confirm(`Delete ${exchange.name}?`, `Its bindings go with it. What clients publish to ${exchange.name} afterwards closes their channels.`, `Delete ${exchange.name}`);
  if (sure && (await act(`Deleted ${exchange.name}.`, () => remove(path("exchanges", exchange.vhost, exchange.name))))) location.hash = "#/exchanges";
}

export function Exchange({ vhost, name }) {
  const where = path("exchanges", vhost, name);
  const live = useLive(where);
  const past = usePast(where);
  const real = name === DEFAULT_EXCHANGE ? "" : name;
  return html`
    <${Loaded} of=${live} what=${`exchange ${name}`} rows=${8} missing=${html`<b>There is no exchange “<bdi>${name}</bdi>” in virtual host “<bdi>${vhost}</bdi>”.</b> <p><a href="#/exchanges">All exchanges</a></p>`}>${(value) => html`
      <div class="row title"><h1><bdi>${real || "(default exchange)"}</bdi></h1><span class="sub">vhost <bdi>${vhost}</bdi></span><${Badge} text=${value.type} title="type" /><${Badges} of=${value} /><span class="grow"></span>
        ${value.internal ? null : html`<button class="btn" onClick=${() => publish({ vhost, exchange: real, key: real ? undefined : "" })}>Publish</button>`}
        ${real === "" || real.startsWith("amq.") ? null : html`<${Menu} label="More acts" acts=${[["Delete…", () => destroy(value), true]]} />`}
      </div>
      <div class="grid2">
        <${Chart} title="Message rates" kind="rate" choice=${past.choice} step=${past.step} age=${past.age} series=${[
          { label: "in", points: rates(past.past?.message_stats?.publish_in_details) },
          { label: "out", points: rates(past.past?.message_stats?.publish_out_details) },
        ]} />
        <${Card} title="Details"><${Facts} rows=${[
          ["In", html`<${Rate} value=${perSecond(value.message_stats, "publish_in") ?? 0} />`], ["Out, to queues", html`<${Rate} value=${perSecond(value.message_stats, "publish_out") ?? 0} />`],
          ["Since the start", `${count(value.message_stats?.publish_in ?? 0)} in, ${count(value.message_stats?.publish_out ?? 0)} out`],
          ["Arguments", html`<${Json} value=${value.arguments} />`], ["Policy", value.policy ?? "none"],
        ]} /><//>
      </div>
      ${value.type === "x-delayed-message" ? html`<${Delayed} where=${where} value=${value} />` : null}
      <${Flows} value=${value} />
      <${Bindings} vhost=${vhost} name=${real} kind="exchange" end="source" title="Goes to" />
      ${real === "" ? null : html`<${Bindings} vhost=${vhost} name=${real} kind="exchange" end="destination" title="Comes from" />`}`}
    <//>`;
}

const SHOWN = 200;

function Delayed({ where, value }) {
  const { value: rows, error } = useAsked(`${where}/delayed?count=${SHOWN}`, 5000);
  const drop = async () => {
    const sure = await confirm(`Cancel the delayed messages of ${value.name}?`, `${counted(value.messages_delayed, "message")} that wait are lost for good.`, "Cancel them");
    if (sure) await act(({ cancelled }) => `Cancelled ${counted(cancelled, "message")}.`, () => remove(`${where}/delayed`, { all: true }));
  };
  return html`
    <${Card} title="Delayed messages" aside=${html`<span class="sub">${counted(value.messages_delayed ?? 0, "message")} ${value.messages_delayed > SHOWN ? `, the first ${SHOWN} are shown` : ""}</span>${value.messages_delayed ? html`<button class="btn small danger" onClick=${drop}>Cancel all…</button>` : null}`}>
      ${error ? html`<p class="empty">${error.message}</p>` : html`<${Table} rows=${rows ?? []} keyOf=${(each) => each.number} empty="No message waits." columns=${[
        { title: "Due", show: (each) => clock(each.due) },
        { title: "Routing key", show: (each) => html`<bdi>${each.routing_key}</bdi>` },
      ]} />`}
    <//>`;
}

function Flows({ value }) {
  if (!value.incoming?.length && !value.outgoing?.length) return null;
  return html`
    <div class="halves">
      <${Card} title="Who publishes"><${Table} rows=${value.incoming} keyOf=${(each) => each.channel_details?.name} empty="Nobody now." columns=${[
        { title: "Channel", class: "name", show: (each) => (each.channel_details?.name ? html`<${ChannelLink} name=${each.channel_details.name} />` : "–") },
        { title: "In", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "publish")} />` },
      ]} /><//>
      <${Card} title="Which queues get it"><${Table} rows=${value.outgoing} keyOf=${(each) => each.queue?.name} empty="None now." columns=${[
        { title: "Queue", class: "name", show: (each) => html`<${QueueLink} ...${each.queue} />` },
        { title: "Out", number: true, show: (each) => html`<${Rate} value=${perSecond(each.stats, "publish")} />` },
      ]} /><//>
    </div>`;
}
