// Users: the list, the form that adds one, and one with its tags, password, permissions and limits.

import { html } from "../vendor/preact.js";
import { path, put, remove, useAsked, useLive, whoami } from "../api.js";
import { closeUser } from "../connection_acts.js";
import { act, confirm, notify, open } from "../dialog.js";
import { Badge, Card, Facts, Json, Loaded, Menu } from "../elements.js";
import { Form } from "../form.js";
import { href } from "../names.js";
import { Permissions, TopicPermissions } from "../permissions.js";
import { Table } from "../table.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management", "impersonator"];
const list = (text) => text.split(",").map((each) => each.trim()).filter(Boolean).join(",");

const PASSWORD = [["keep", "keep it"], ["new", "a new one"], ["none", "none: can't log in with one"]];

function edit(user) {
  const fields = [
    { name: "name", label: "Name", required: true, autofocus: true, when: () => !user },
    { name: "how", label: "Password", type: "select", options: user ? PASSWORD : PASSWORD.slice(1) },
    { name: "password", label: "New password", type: "password", required: true, when: (values) => values.how === "new" },
    { name: "tags", label: "Tags", value: user?.tags.join(", ") ?? "", placeholder: "management", hint: `of ${TAGS.join(", ")}; none for clients that only speak AMQP` },
  ];
  return open(user ? `Change ${user.name}` : "Add a user", (close) => html`
    <${Form} fields=${fields} label=${user ? "Change" : "Add"} cancel=${() => close()} submit=${async (values) => {
      const secret = values.how === "new" ? { password: values.password } : values.how === "none" ? { password_hash: "" } : { password_hash: user.password_hash, hashing_algorithm: user.hashing_algorithm };
      await put(path("users", user?.name ?? values.name), { ...secret, tags: list(values.tags) });
      close();
      notify(user ? `Changed ${user.name}.` : `Added ${values.name}; give it permissions in a virtual host.`);
      if (!user) location.hash = href("users", values.name);
    }} />`);
}

async function destroy(user) {
  const sure = await confirm(`Delete user ${user.name}?`, `Its permissions go with it. ${user.name === whoami().name ? "That is you: you will be logged out. " : ""}Its connections are closed.`, `Delete ${user.name}`);
  if (sure && (await act(`Deleted ${user.name}.`, () => remove(path("users", user.name))))) location.hash = "#/users";
}

const Tags = ({ tags }) => html`<span class="badges">${tags.map((tag) => html`<${Badge} key=${tag} text=${tag} />`)}</span>`;

export function Users() {
  const live = useLive("/users");
  const without = useAsked("/users/without-permissions", 5000).value ?? [];
  const idle = new Set(without.map((each) => each.name));
  return html`
    <div class="row"><h1>Users</h1><span class="grow"></span><button class="btn p" onClick=${() => edit(null)}>Add a user</button></div>
    <${Loaded} of=${live} what="the users" rows=${4}>${(rows) => html`
      <${Card}><${Table} rows=${rows} keyOf=${(each) => each.name} order=${["Name"]} empty="No user." columns=${[
        { title: "Name", class: "name", by: (each) => each.name, show: (each) => html`<a href=${href("users", each.name)}><bdi>${each.name}</bdi></a>` },
        { title: "Tags", show: (each) => html`<${Tags} tags=${each.tags} />` },
        { title: "Password", secondary: true, show: (each) => (each.password_hash ? "yes" : "none") },
        { title: "Limits", secondary: true, show: (each) => html`<${Json} value=${each.limits} />` },
        { title: "Can do", show: (each) => (idle.has(each.name) ? html`<span class="sub">nothing: no permissions</span>` : html`<a href=${href("users", each.name)}>its permissions</a>`) },
        { title: "", class: "acts", show: (each) => html`<button class="btn" onClick=${() => edit(each)}>Change</button> <button class="btn" onClick=${() => destroy(each)}>Delete…</button>` },
      ]} /><//>`}
    <//>`;
}

export function User({ name }) {
  const live = useLive(path("users", name));
  const vhosts = (useAsked("/vhosts?columns=name").value ?? []).map((each) => each.name);
  const close = async () => {
    if (await confirm(`Close all connections of ${name}?`, "What they hold goes back to its queues. The clients may connect again.", "Close them")) await closeUser(name);
  };
  return html`
    <${Loaded} of=${live} what=${`user ${name}`} rows=${4} missing=${html`<b>There is no user “<bdi>${name}</bdi>”.</b> <p><a href="#/users">All users</a></p>`}>${(user) => html`
      <div class="row title"><h1><bdi>${user.name}</bdi></h1><${Tags} tags=${user.tags} /><span class="grow"></span><button class="btn" onClick=${() => edit(user)}>Change</button>
        <${Menu} label="More acts" acts=${[["Close its connections…", close, true], ["Delete…", () => destroy(user), true]]} /></div>
      <${Permissions} user=${name} others=${vhosts} />
      <${TopicPermissions} user=${name} others=${vhosts} />
      <${Card} title="User"><${Facts} rows=${[["Password", user.password_hash ? `stored with ${user.hashing_algorithm}` : "none"], ["Limits", html`<${Json} value=${user.limits} />`]]} /><//>`}
    <//>`;
}
