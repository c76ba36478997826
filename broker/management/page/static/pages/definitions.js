// Definitions: export them as a file, and import one after looking at what it would change.

import { html, useState } from "../vendor/preact.js";
import { ask, path, useAsked } from "../api.js";
import { notify } from "../dialog.js";
import { Card } from "../elements.js";
import { count, counted } from "../format.js";
import { Form } from "../form.js";
import { Touches } from "../preview.js";

const where = (vhost) => (vhost ? `/definitions${path(vhost)}` : "/definitions");

/** Hands the user a file. */
function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function Definitions() {
  const names = (useAsked("/vhosts?columns=name").value ?? []).map((each) => each.name);
  const options = [["", "the whole broker"], ...names.map((name) => [name, `virtual host ${name}`])];
  return html`
    <div class="row"><h1>Definitions</h1><span class="sub">users, virtual hosts, queues, exchanges, bindings, policies, parameters; no messages</span></div>
    <div class="halves">
      <${Card} title="Export"><${Form} fields=${[{ name: "vhost", label: "Of", type: "select", options }]} label="Download" submit=${async ({ vhost }) => {
        const text = await ask("GET", where(vhost), undefined, { raw: true });
        save(JSON.stringify(JSON.parse(text), null, 2), `definitions-${new Date().toISOString().slice(0, 10)}.json`);
      }} /><//>
      <${Import} options=${options} />
    </div>`;
}

function Import({ options }) {
  const [plan, setPlan] = useState(null);
  return html`
    <${Card} title="Import">
      <${Form} label="Show what it would change" fields=${[
        { name: "vhost", label: "Into", type: "select", options },
        { name: "file", label: "File of definitions", type: "file", accept: ".json,application/json", required: true },
      ]} submit=${async ({ vhost, file }) => {
        setPlan(null);
        let body;
        try {
          body = JSON.parse(await file.text());
        } catch (error) {
          throw new Error(`${file.name} is not JSON: ${error.message}`);
        }
        setPlan({ vhost, body, difference: await ask("POST", `${where(vhost)}?dry_run=true`, body) });
      }} />
      ${plan ? html`<${Plan} plan=${plan} done=${() => setPlan(null)} />` : null}
    <//>`;
}

const PARTS = [["add", "Added"], ["change", "Changed"], ["left", "There and different; they stay"]];
const words = (each) => (typeof each === "string" ? each : `${each.what}: ${each.differs}`);

function Plan({ plan, done }) {
  const { difference } = plan;
  const changes = difference.add.length + difference.change.length;
  return html`
    <div class="plan" aria-live="polite">
      <p><b>${changes ? `${counted(difference.add.length, "object")} added, ${count(difference.change.length)} changed, ${count(difference.unchanged)} as they are.` : "It changes nothing."}</b></p>
      ${PARTS.map(([key, title]) => (difference[key].length ? html`
        <details key=${key} open=${key !== "left"}><summary>${title}: ${count(difference[key].length)}</summary><ul class="json">${difference[key].slice(0, 200).map((each, index) => html`<li key=${index}><bdi>${words(each)}</bdi></li>`)}</ul></details>` : null))}
      ${difference.policies.filter((each) => each.queues_changed || each.exchanges_changed).map((each) => html`
        <p class="touches" key=${each.what}><bdi>${each.what}</bdi><br /><${Touches} found=${each} /></p>`)}
      ${changes ? html`<${Form} fields=${[]} label=${`Import ${counted(changes, "change")}`} cancel=${done} submit=${async () => {
        await ask("POST", where(plan.vhost), plan.body);
        done();
        notify("The definitions are imported.");
      }} />` : null}
    </div>`;
}
