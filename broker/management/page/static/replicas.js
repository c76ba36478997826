// The copies of a queue: leader and members, or master and mirrors, with state and lag, and what changes them.

import { html } from "./vendor/preact.js";
import { ask, may, path, post, useAsked } from "./api.js";
import { act, confirm, notify, open } from "./dialog.js";
import { Card } from "./elements.js";
import { count, node } from "./format.js";
import { Form } from "./form.js";
import { NodeLink } from "./names.js";
import { members } from "./queue_facts.js";

const STATUS_MS = 3_000;
const TITLES = { quorum: "Replicas", stream: "Replicas" };

/** The path below which replicas are changed. */
const group = (queue) => (queue.type === "stream" ? `/streams${path(queue.vhost, queue.name)}` : `/queues/quorum${path(queue.vhost, queue.name)}`);

async function drop(queue, member) {
  const left = queue.members.length - 1;
  const sure = await confirm(`Remove the replica on ${node(member.node)}?`, `${queue.name} has ${left} ${left === 1 ? "replica" : "replicas"} then${left < 3 ? ", and does not survive the loss of a node" : ""}. The copy on ${node(member.node)} is erased.`, `Remove from ${node(member.node)}`);
  if (sure) await act(`Removed the replica on ${node(member.node)}.`, () => ask("DELETE", `${group(queue)}/replicas/delete`, { node: member.node }));
}

function add(queue, nodes) {
  const free = nodes.filter((each) => !queue.members.includes(each));
  return open(`Add a replica of ${queue.name}`, (close) => html`
    <${Form} fields=${[{ name: "node", label: "On node", type: "select", options: free.map((each) => [each, node(each)]) }]} label="Add" cancel=${() => close()} submit=${async (values) => {
      await post(`${group(queue)}/replicas/add`, { node: values.node });
      close();
      notify(`A replica on ${node(values.node)} catches up.`);
    }} />`);
}

function lead(queue) {
  if (queue.type === "stream") {
    const others = queue.online.filter((each) => each !== queue.leader);
    return open(`Move the leader of ${queue.name}`, (close) => html`
      <${Form} fields=${[{ name: "preferred_leader_node", label: "To node", type: "select", options: others.map((each) => [each, node(each)]) }]} label="Move" cancel=${() => close()} submit=${async (values) => {
        const { leader } = await post(`${group(queue)}/restart`, values);
        close();
        notify(`${node(leader)} leads ${queue.name}.`);
      }} />`);
  }
  return act("Leaders are being balanced.", () => post("/rebalance/queues"));
}

export function Members({ queue }) {
  const where = queue.type === "quorum" ? `/queues/quorum${path(queue.vhost, queue.name)}/status` : queue.type === "stream" ? `/streams${path(queue.vhost, queue.name)}/status` : null;
  const status = useAsked(where, STATUS_MS);
  const cluster = useAsked(may("monitoring") ? "/nodes?columns=name,running" : null, 10_000);
  const found = members(queue, status.value);
  const isGroup = Boolean(TITLES[queue.type]);
  const nodes = (cluster.value ?? []).filter((each) => each.running).map((each) => each.name);
  const canAdd = isGroup && nodes.some((each) => !queue.members.includes(each));
  const isAdmin = may("administrator");
  const title = TITLES[queue.type] ?? (queue.slave_nodes ? "Master and mirrors" : "Where it is");
  return html`
    <${Card} title=${title} class="members">
      <table><tbody>${found.map((member) => html`
        <tr key=${member.node}>
          <td><span class=${`dot ${member.level}`} aria-hidden="true"></span></td>
          <td><${member.isLeader ? "b" : "span"}><${NodeLink} name=${member.node} /><//> <span class="sub">${member.role}</span></td>
          <td class="n">${member.number === undefined ? "" : count(member.number)}</td>
          <td class="n sub">${member.words}</td>
          ${isGroup && isAdmin ? html`<td class="acts">${found.length > 1 ? html`<button class="btn quiet" aria-label=${`Remove the replica on ${node(member.node)}`} title="Remove this replica" onClick=${() => drop(queue, member)}>✕</button>` : null}</td>` : null}
        </tr>`)}</tbody></table>
      ${found.length ? null : html`<p class="empty">No node serves it now.</p>`}
      ${queue.sync_messages === undefined ? null : html`<p class="sub">${count(queue.sync_messages)} of ${count(queue.messages)} messages are copied.</p>`}
      ${isAdmin && nodes.length > 1 ? html`<div class="row buttons">
        ${canAdd ? html`<button class="btn" onClick=${() => add(queue, nodes)}>Add replica</button>` : null}
        ${isGroup && found.length > 1 ? html`<button class="btn" onClick=${() => lead(queue)}>${queue.type === "stream" ? "Move leader" : "Balance leaders"}</button>` : null}
      </div>` : null}
    <//>`;
}
