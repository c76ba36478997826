// Limits of virtual hosts and of users.

import { html } from "../vendor/preact.js";
import { may, path, put, remove, useAsked, useLive } from "../api.js";
import { act, notify, open } from "../dialog.js";
import { Card, Loaded } from "../elements.js";
import { count } from "../format.js";
import { Form } from "../form.js";
import { Table } from "../table.js";

const KINDS = {
  vhost: { title: "Limits of virtual hosts", where: "vhost-limits", key: "vhost", label: "Virtual host", names: [["max-connections", "connections"], ["max-queues", "queues"]] },
  user: { title: "Limits of users", where: "user-limits", key: "user", label: "User", names: [["max-connections", "connections"], ["max-channels", "channels"]] },
};

export function Limits() {
  const admin = may("administrator");
  const vhosts = (useAsked("/vhosts?columns=name").value ?? []).map((each) => each.name);
  const users = (useAsked(admin ? "/users?columns=name" : null).value ?? []).map((each) => each.name);
  return html`
    <div class="row"><h1>Limits</h1></div>
    <${List} kind=${KINDS.vhost} owners=${vhosts} admin=${admin} />
    ${admin ? html`<${List} kind=${KINDS.user} owners=${users} admin=${admin} />` : null}`;
}

function set(kind, owners) {
  const fields = [
    { name: "owner", label: kind.label, type: "select", options: owners },
    { name: "name", label: "Most", type: "select", options: kind.names },
    { name: "value", label: "Number", type: "number", required: true, hint: "0 allows none; below 0 lifts the limit" },
  ];
  return open("Set a limit", (close) => html`
    <${Form} fields=${fields} label="Set" cancel=${() => close()} submit=${async (values) => {
      await put(path(kind.where, values.owner, values.name), { value: Number(values.value) });
      close();
      notify("The limit is set.");
    }} />`);
}

function List({ kind, owners, admin }) {
  const live = useLive(`/${kind.where}`);
  return html`
    <${Card} title=${kind.title} aside=${admin && owners.length ? html`<button class="btn small" onClick=${() => set(kind, owners)}>Set…</button>` : null}>
      <${Loaded} of=${live} what="the limits" rows=${2}>${(value) => {
        const rows = value.flatMap((each) => Object.entries(each.value).map(([name, number]) => ({ owner: each[kind.key], name, number })));
        return html`<${Table} rows=${rows} keyOf=${(each) => `${each.owner}/${each.name}`} empty="None." columns=${[
          { title: kind.label, by: (each) => each.owner, show: (each) => html`<bdi>${each.owner}</bdi>` },
          { title: "Limit", by: (each) => each.name, show: (each) => each.name },
          { title: "Number", number: true, by: (each) => each.number, show: (each) => count(each.number) },
          { title: "", class: "acts", show: (each) => (admin ? html`<button class="btn" onClick=${() => act(`Lifted ${each.name} of ${each.owner}.`, () => remove(path(kind.where, each.owner, each.name)))}>Lift</button>` : null) },
        ]} />`;
      }}<//>
    <//>`;
}
