// Feature flags and deprecated features.

import { html } from "../vendor/preact.js";
import { may, path, put, useAsked, useLive } from "../api.js";
import { act, confirm } from "../dialog.js";
import { Card, Loaded, State } from "../elements.js";
import { Table } from "../table.js";

const LEVELS = { enabled: "ok", disabled: "warn", unavailable: "off" };

async function enable(flag) {
  const sure = await confirm(`Enable ${flag.name}?`, `${flag.desc}. It can't be disabled again, and nodes of an older version can't join afterwards.`, `Enable ${flag.name}`);
  if (sure) await act(`${flag.name} is enabled.`, () => put(`/feature-flags${path(flag.name)}/enable`));
}

export function Features() {
  const live = useLive("/feature-flags");
  const used = new Set((useAsked("/deprecated-features/used", 10_000).value ?? []).map((each) => each.name));
  const deprecated = useLive("/deprecated-features");
  return html`
    <div class="row"><h1>Feature flags</h1></div>
    <${Loaded} of=${live} what="the feature flags" rows=${6}>${(flags) => html`
      <${Card}><${Table} rows=${flags} keyOf=${(each) => each.name} order=${["State"]} empty="None." columns=${[
        { title: "Name", by: (each) => each.name, show: (each) => html`<span class="mono">${each.name}</span>` },
        { title: "State", by: (each) => each.state, show: (each) => html`<${State} level=${LEVELS[each.state]}>${each.state}<//>` },
        { title: "What it is", show: (each) => html`<span class="sub">${each.desc}</span>` },
        { title: "", class: "acts", show: (each) => (each.state === "disabled" && may("administrator") ? html`<button class="btn" onClick=${() => enable(each)}>Enable…</button>` : null) },
      ]} /><//>`}
    <//>
    <${Loaded} of=${deprecated} what="the deprecated features" rows=${2}>${(rows) => html`
      <${Card} title="Deprecated features"><${Table} rows=${rows} keyOf=${(each) => each.name} empty="None." columns=${[
        { title: "Name", show: (each) => html`<span class="mono">${each.name}</span>` },
        { title: "In use", show: (each) => (used.has(each.name) ? html`<${State} level="warn">in use<//>` : "no") },
        { title: "State", secondary: true, show: (each) => each.state },
        { title: "What it is", show: (each) => html`<span class="sub">${each.desc}</span>` },
      ]} /><//>`}
    <//>`;
}
