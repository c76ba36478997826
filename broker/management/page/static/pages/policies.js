// Policies and operator policies: the lists, and the form that sets one and says which queues it touches.

import { html } from "../vendor/preact.js";
import { get, may, path, put, remove, useAsked, useLive } from "../api.js";
import { act, confirm, notify, open } from "../dialog.js";
import { Card, Json, Loaded } from "../elements.js";
import { count } from "../format.js";
import { Form, objectOf, rowsOf } from "../form.js";
import { useVhost, within } from "../names.js";
import { PolicyTouches } from "../preview.js";
import { Table } from "../table.js";

const SUGGESTED = [
  ["message-ttl", "Number", "Message TTL (ms)"], ["expires", "Number", "Expires (ms)"], ["max-length", "Number", "Max length"], ["max-length-bytes", "Number", "Max length bytes"],
  ["overflow", "String", "Overflow"], ["dead-letter-exchange", "String", "Dead letter exchange"], ["dead-letter-routing-key", "String", "Dead letter routing key"],
  ["delivery-limit", "Number", "Delivery limit"], ["ha-mode", "String", "HA mode"], ["ha-params", "Number", "HA params"], ["ha-sync-mode", "String", "HA sync mode"],
  ["alternate-exchange", "String", "Alternate exchange"], ["max-age", "String", "Max age (stream)"],
];
const OPERATOR = SUGGESTED.filter(([key]) => ["message-ttl", "expires", "max-length", "max-length-bytes", "overflow", "delivery-limit"].includes(key));
const APPLY = [["all", "exchanges and queues"], ["queues", "queues and streams"], ["classic_queues", "classic queues"], ["quorum_queues", "quorum queues"], ["streams", "streams"], ["exchanges", "exchanges"]];

/** What the policy of the form would touch; nothing while the form is not complete. */
function Touched({ kind, vhost, name, values }) {
  if (!values.pattern || !name) return null;
  let definition;
  try {
    definition = objectOf(values.definition);
  } catch {
    return null;
  }
  if (!Object.keys(definition).length) return null;
  const body = { pattern: values.pattern, "apply-to": values["apply-to"], priority: Number(values.priority), definition };
  return html`<${PolicyTouches} where=${path(kind.where, vhost, name)} body=${body} />`;
}

const told = (policy) => `${JSON.stringify(Object.fromEntries(Object.entries(policy.definition).sort()))} for ${policy["apply-to"]} that match ${policy.pattern}, priority ${policy.priority}`;

/** What somebody else has done to a policy since the form saw it, "" for nothing. */
function meanwhile(name, seen, found) {
  if (found && !seen) return `There is a ${name} already: ${told(found)}.`;
  if (seen && !found) return `${name} was deleted since this form was opened.`;
  if (seen && told(seen) !== told(found)) return `${name} was changed since this form was opened. It is now ${told(found)}.`;
  return "";
}

function edit(kind, vhosts, policy, chosenVhost) {
  let seen = policy;
  const fields = [
    { name: "vhost", label: "Virtual host", type: "select", options: vhosts, value: policy?.vhost ?? (chosenVhost || vhosts[0]), when: () => !policy && vhosts.length > 1 },
    { name: "name", label: "Name", required: true, autofocus: true, when: () => !policy },
    { name: "pattern", label: "Pattern (regular expression)", required: true, value: policy?.pattern ?? "", placeholder: "^orders" },
    { name: "apply-to", label: "Applies to", type: "select", options: kind.apply, value: policy?.["apply-to"] ?? "queues" },
    { name: "priority", label: "Priority", type: "number", value: String(policy?.priority ?? 0), hint: "Where several match, the highest holds." },
    { name: "definition", label: "Definition", type: "arguments", suggest: kind.suggested, value: rowsOf(policy?.definition), hint: (values) => html`<${Touched} kind=${kind} vhost=${policy?.vhost ?? values.vhost} name=${policy?.name ?? values.name} values=${values} />` },
  ];
  return open(policy ? `Change ${policy.name}` : `Add ${kind.one}`, (close) => html`
    <${Form} fields=${fields} label=${policy ? "Change" : "Add"} cancel=${() => close()} submit=${async (values) => {
      const { vhost, name } = policy ?? values;
      const definition = objectOf(values.definition);
      const found = (await get(path(kind.where, vhost))).find((each) => each.name === name);
      const news = meanwhile(name, seen, found);
      seen = found;
      if (news) throw new Error(`${news} Press the button again to put yours in its place.`);
      await put(path(kind.where, vhost, name), { pattern: values.pattern, "apply-to": values["apply-to"], priority: Number(values.priority), definition });
      close();
      notify(`${name} holds.`);
    }} />`, { wide: true });
}

async function destroy(kind, policy) {
  const touches = html`<${PolicyTouches} where=${path(kind.where, policy.vhost, policy.name)} method="DELETE" />`;
  const sure = await confirm(`Delete ${kind.word} ${policy.name}?`, html`${`${JSON.stringify(policy.definition)} no longer holds for what matches ${policy.pattern} in virtual host ${policy.vhost}; another that matches may. `}${touches}`, `Delete ${policy.name}`);
  if (sure) await act(`Deleted ${policy.name}.`, () => remove(path(kind.where, policy.vhost, policy.name)));
}

const KINDS = {
  user: { title: "Policies", one: "a policy", word: "policy", where: "policies", suggested: SUGGESTED, apply: APPLY, tag: "policymaker" },
  operator: { title: "Operator policies", one: "an operator policy", word: "operator policy", where: "operator-policies", suggested: OPERATOR, apply: APPLY.filter(([value]) => value !== "all" && value !== "exchanges"), tag: "administrator" },
};

export function Policies({ chosen }) {
  const [vhost, choice, vhosts] = useVhost();
  const operator = useAsked("/overview?columns=is_op_policy_updating_enabled").value;
  return html`
    <div class="row"><h1>Policies</h1><span class="grow"></span>${choice}</div>
    <${List} kind=${KINDS.user} vhost=${vhost} vhosts=${vhosts} chosen=${chosen} canChange=${may("policymaker")} />
    <${List} kind=${KINDS.operator} vhost=${vhost} vhosts=${vhosts} chosen=${chosen} canChange=${may("administrator") && operator?.is_op_policy_updating_enabled !== false} />`;
}

function List({ kind, vhost, vhosts, chosen, canChange }) {
  const live = useLive(within(kind.where, vhost));
  return html`
    <${Card} title=${kind.title} aside=${canChange && vhosts.length ? html`<button class="btn small" onClick=${() => edit(kind, vhosts, null, vhost)}>Add…</button>` : null}>
      <${Loaded} of=${live} what=${kind.title.toLowerCase()} rows=${2}>${(rows) => html`
        <${Table} rows=${rows} keyOf=${(each) => `${each.vhost}/${each.name}`} order=${["Priority", true]} empty="None." columns=${[
          { title: "Name", class: "name", by: (each) => each.name, show: (each) => html`<${chosen[1] === each.name && chosen[0] === each.vhost ? "b" : "span"}><bdi>${each.name}</bdi><//>` },
          { title: "Virtual host", secondary: true, by: (each) => each.vhost, show: (each) => html`<bdi>${each.vhost}</bdi>` },
          { title: "Pattern", show: (each) => html`<bdi class="mono">${each.pattern}</bdi>` },
          { title: "Applies to", secondary: true, show: (each) => APPLY.find(([value]) => value === each["apply-to"])?.[1] ?? each["apply-to"] },
          { title: "Definition", show: (each) => html`<${Json} value=${each.definition} />` },
          { title: "Priority", number: true, secondary: true, by: (each) => each.priority, show: (each) => count(each.priority) },
          { title: "", class: "acts", show: (each) => (canChange ? html`<button class="btn" onClick=${() => edit(kind, vhosts, each)}>Change</button> <button class="btn" onClick=${() => destroy(kind, each)}>Delete…</button>` : null) },
        ]} />`}
      <//>
    <//>`;
}
