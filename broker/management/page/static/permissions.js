// Permissions and topic permissions: of a user, or of a virtual host.

import { html } from "./vendor/preact.js";
import { path, put, remove, useLive } from "./api.js";
import { act, confirm, notify, open } from "./dialog.js";
import { Card, Loaded } from "./elements.js";
import { Form } from "./form.js";
import { href } from "./names.js";
import { Table } from "./table.js";

const KINDS = [
  ["configure", "Configure", "declare and delete"], ["write", "Write", "publish, bind"], ["read", "Read", "consume, get, purge"],
];

function set({ user, vhost, others, now }) {
  const fields = [
    { name: "other", label: user ? "Virtual host" : "User", type: "select", options: others, value: now?.[user ? "vhost" : "user"] ?? others[0], when: () => !now },
    ...KINDS.map(([name, label, hint]) => ({ name, label: `${label} (regular expression)`, value: now?.[name] ?? ".*", hint: `${hint}; empty for nothing` })),
  ];
  return open("Set permissions", (close) => html`
    <${Form} fields=${fields} label="Set" cancel=${() => close()} submit=${async ({ other, ...values }) => {
      await put(path("permissions", vhost ?? other, user ?? other), values);
      close();
      notify("The permissions are set.");
    }} />`);
}

async function clear(each) {
  const sure = await confirm(`Clear the permissions of ${each.user}?`, `${each.user} can do nothing in virtual host ${each.vhost} any more. Open channels are refused from now on.`, "Clear");
  if (sure) await act("Cleared.", () => remove(path("permissions", each.vhost, each.user)));
}

/** What a user may do in virtual hosts, or users in a virtual host; `others` are the names at the other end. */
export function Permissions({ user, vhost, others }) {
  const live = useLive(user ? `${path("users", user)}/permissions` : `${path("vhosts", vhost)}/permissions`);
  const ends = user ? { title: "Virtual host", by: (each) => each.vhost, show: (each) => html`<a href=${href("vhosts", each.vhost)}><bdi>${each.vhost}</bdi></a>` }
    : { title: "User", by: (each) => each.user, show: (each) => html`<a href=${href("users", each.user)}><bdi>${each.user}</bdi></a>` };
  const columns = [
    ends,
    ...KINDS.map(([key, title]) => ({ title, show: (each) => html`<bdi class="mono">${each[key] || "nothing"}</bdi>` })),
    { title: "", class: "acts", show: (each) => html`<button class="btn" onClick=${() => set({ user, vhost: user ? each.vhost : vhost, others, now: each, ...(user ? {} : { user: each.user }) })}>Change</button> <button class="btn" onClick=${() => clear(each)}>Clear…</button>` },
  ];
  return html`
    <${Card} title="Permissions" aside=${others.length ? html`<button class="btn small" onClick=${() => set({ user, vhost, others })}>Set…</button>` : null}>
      <${Loaded} of=${live} what="the permissions" rows=${2}>${(rows) => html`<${Table} rows=${rows} columns=${columns} keyOf=${(each) => `${each.vhost}/${each.user}`} empty="None: it can do nothing." />`}<//>
    <//>`;
}

function setTopic({ user, vhost, others, now }) {
  const fields = [
    { name: "other", label: user ? "Virtual host" : "User", type: "select", options: others, when: () => !now },
    { name: "exchange", label: "Exchange", required: true, value: now?.exchange ?? "", when: () => !now, placeholder: "amq.topic" },
    { name: "write", label: "Write: routing keys to publish with (regular expression)", value: now?.write ?? ".*" },
    { name: "read", label: "Read: routing keys to bind with (regular expression)", value: now?.read ?? ".*" },
  ];
  return open("Set topic permissions", (close) => html`
    <${Form} fields=${fields} label="Set" cancel=${() => close()} submit=${async ({ other, ...values }) => {
      await put(path("topic-permissions", now?.vhost ?? vhost ?? other, now?.user ?? user ?? other), values);
      close();
      notify("The topic permissions are set.");
    }} />`);
}

/** Which routing keys may be used at topic exchanges. */
export function TopicPermissions({ user, vhost, others }) {
  const live = useLive(user ? `${path("users", user)}/topic-permissions` : `${path("vhosts", vhost)}/topic-permissions`);
  const columns = [
    { title: user ? "Virtual host" : "User", show: (each) => html`<bdi>${user ? each.vhost : each.user}</bdi>` },
    { title: "Exchange", show: (each) => html`<bdi>${each.exchange || "(default)"}</bdi>` },
    { title: "Write", show: (each) => html`<bdi class="mono">${each.write || "nothing"}</bdi>` },
    { title: "Read", show: (each) => html`<bdi class="mono">${each.read || "nothing"}</bdi>` },
    { title: "", class: "acts", show: (each) => html`<button class="btn" onClick=${() => setTopic({ user, vhost, others, now: each })}>Change</button> <button class="btn" onClick=${() => act("Cleared: all routing keys are allowed there.", () => remove(path("topic-permissions", each.vhost, each.user, each.exchange)))}>Clear</button>` },
  ];
  return html`
    <${Card} title="Topic permissions" aside=${others.length ? html`<button class="btn small" onClick=${() => setTopic({ user, vhost, others })}>Set…</button>` : null}>
      <${Loaded} of=${live} what="the topic permissions" rows=${1}>${(rows) => html`<${Table} rows=${rows} columns=${columns} keyOf=${(each) => `${each.vhost}/${each.user}/${each.exchange}`} empty="None: every routing key is allowed." />`}<//>
    <//>`;
}
