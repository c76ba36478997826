// Virtual hosts: the list, the form that adds one, and one with its rates, permissions and tracing.

import { html } from "../vendor/preact.js";
import { may, path, put, remove, useAsked, useLive } from "../api.js";
import { Chart, levels, rates, usePast } from "../charts.js";
import { act, confirm, notify, open } from "../dialog.js";
import { Badge, Card, Facts, Figure, Loaded, Menu, Rate } from "../elements.js";
import { bytes, count, counted, perSecond } from "../format.js";
import { Form } from "../form.js";
import { href } from "../names.js";
import { Permissions, TopicPermissions } from "../permissions.js";
import { Table } from "../table.js";

const TYPES = [["", "as the node's settings say"], "classic", "quorum", "stream"];

function edit(vhost) {
  const type = vhost?.default_queue_type === "undefined" ? "" : vhost?.default_queue_type;
  const fields = [
    { name: "name", label: "Name", required: true, autofocus: true, when: () => !vhost },
    { name: "description", label: "Description", value: vhost?.description ?? "" },
    { name: "tags", label: "Tags", value: vhost?.tags?.join(", ") ?? "", placeholder: "production" },
    { name: "default_queue_type", label: "Type of queues that name none", type: "select", options: TYPES, value: type ?? "" },
  ];
  return open(vhost ? `Change ${vhost.name}` : "Add a virtual host", (close) => html`
    <${Form} fields=${fields} label=${vhost ? "Change" : "Add"} cancel=${() => close()} submit=${async ({ name, default_queue_type: chosen, ...values }) => {
      await put(path("vhosts", vhost?.name ?? name), { ...values, ...(chosen ? { default_queue_type: chosen } : {}) });
      close();
      notify(vhost ? `Changed ${vhost.name}.` : `Added ${name}.`);
    }} />`);
}

async function destroy(vhost) {
  const sure = await confirm(`Delete virtual host ${vhost.name}?`, `All its queues with ${counted(vhost.messages ?? 0, "message")}, its exchanges, bindings, policies and permissions are lost for good. Its clients are closed.`, `Delete ${vhost.name}`);
  if (sure && (await act(`Deleted ${vhost.name}.`, () => remove(path("vhosts", vhost.name))))) location.hash = "#/vhosts";
}

export function Vhosts() {
  const live = useLive("/vhosts");
  const admin = may("administrator");
  return html`
    <div class="row"><h1>Virtual hosts</h1><span class="grow"></span>${admin ? html`<button class="btn p" onClick=${() => edit(null)}>Add a virtual host</button>` : null}</div>
    <${Loaded} of=${live} what="the virtual hosts" rows=${4}>${(rows) => html`
      <${Card}><${Table} rows=${rows} keyOf=${(each) => each.name} order=${["Ready", true]} empty="None that you may see." columns=${[
        { title: "Name", class: "name", by: (each) => each.name, show: (each) => html`<a href=${href("vhosts", each.name)}><bdi>${each.name}</bdi></a>${each.description ? html`<div class="sub">${each.description}</div>` : null}` },
        { title: "Tags", secondary: true, show: (each) => html`<span class="badges">${(each.tags ?? []).map((tag) => html`<${Badge} key=${tag} text=${tag} />`)}${each.tracing ? html`<${Badge} text="tracing" title="copies of all messages go to amq.rabbitmq.trace" />` : null}</span>` },
        { title: "Ready", number: true, by: (each) => each.messages_ready ?? 0, show: (each) => count(each.messages_ready ?? 0) },
        { title: "Unacked", number: true, by: (each) => each.messages_unacknowledged ?? 0, show: (each) => count(each.messages_unacknowledged ?? 0) },
        { title: "Publish", number: true, show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "publish")} />` },
        { title: "Deliver", number: true, show: (each) => html`<${Rate} value=${perSecond(each.message_stats, "deliver_get")} />` },
        { title: "From clients", number: true, secondary: true, show: (each) => (each.recv_oct_details ? `${bytes(each.recv_oct_details.rate)}/s` : "–") },
        { title: "", class: "acts", show: (each) => (admin ? html`<button class="btn" onClick=${() => edit(each)}>Change</button> <button class="btn" onClick=${() => destroy(each)}>Delete…</button>` : null) },
      ]} /><//>`}
    <//>`;
}

export function Vhost({ name }) {
  const where = path("vhosts", name);
  const live = useLive(where);
  const past = usePast(where, { day: true });
  const admin = may("administrator");
  const users = (useAsked(admin ? "/users?columns=name" : null).value ?? []).map((each) => each.name);
  const trace = (vhost) => act(vhost.tracing ? "Tracing is off." : "Tracing is on: bind a queue to amq.rabbitmq.trace.", () => (vhost.tracing ? remove(`${where}/tracing`) : put(`${where}/tracing`)));
  return html`
    <${Loaded} of=${live} what=${`virtual host ${name}`} rows=${6} missing=${html`<b>There is no virtual host “<bdi>${name}</bdi>”.</b> <p><a href="#/vhosts">All virtual hosts</a></p>`}>${(value) => html`
      <div class="row title"><h1><bdi>${name}</bdi></h1><span class="sub">${value.description}</span>${value.tracing ? html`<${Badge} text="tracing" />` : null}<span class="grow"></span>
        ${admin ? html`<button class="btn" onClick=${() => edit(value)}>Change</button><${Menu} label="More acts" acts=${[[value.tracing ? "Stop tracing" : "Trace all messages", () => trace(value)], ["Delete…", () => destroy(value), true]]} />` : null}</div>
      <div class="grid4">
        <${Figure} title="Ready" value=${count(value.messages_ready ?? 0)} />
        <${Figure} title="Unacknowledged" value=${count(value.messages_unacknowledged ?? 0)} />
        <${Figure} title="In → out" value=${`${count(perSecond(value.message_stats, "publish") ?? 0)} → ${count(perSecond(value.message_stats, "deliver_get") ?? 0)}`} unit="/s" />
        <${Figure} title="From and to clients" value=${bytes((value.recv_oct_details?.rate ?? 0) + (value.send_oct_details?.rate ?? 0)).split(" ")[0]} unit=${`${bytes((value.recv_oct_details?.rate ?? 0) + (value.send_oct_details?.rate ?? 0)).split(" ")[1]}/s`} />
      </div>
      <div class="halves">
        <${Chart} title="Messages" choice=${past.choice} step=${past.step} age=${past.age} series=${[
          { label: "ready", points: levels(past.past?.messages_ready_details) }, { label: "unacknowledged", points: levels(past.past?.messages_unacknowledged_details) }]} />
        <${Chart} title="Message rates" kind="rate" step=${past.step} age=${past.age} series=${[
          { label: "publish", points: rates(past.past?.message_stats?.publish_details) }, { label: "deliver", points: rates(past.past?.message_stats?.deliver_get_details) }, { label: "acknowledge", points: rates(past.past?.message_stats?.ack_details) }]} />
      </div>
      ${admin ? html`<${Permissions} vhost=${name} others=${users} /><${TopicPermissions} vhost=${name} others=${users} />` : null}
      <${Card} title="Virtual host"><${Facts} rows=${[["Tags", (value.tags ?? []).join(", ") || "none"], ["Type of queues that name none", value.default_queue_type === "undefined" ? "as the node's settings say" : value.default_queue_type]]} /><//>`}
    <//>`;
}
