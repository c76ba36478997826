// Admin: users, virtual hosts, policies, limits, definitions and feature flags, each under RabbitMQ's URL.

import { html } from "../vendor/preact.js";
import { may } from "../api.js";
import { Definitions } from "./definitions.js";
import { Features } from "./features.js";
import { Limits } from "./limits.js";
import { Policies } from "./policies.js";
import { User, Users } from "./users.js";
import { Vhost, Vhosts } from "./vhosts.js";

const PARTS = [
  ["users", "Users", "administrator"],
  ["vhosts", "Virtual hosts", "management"],
  ["policies", "Policies", "management"],
  ["limits", "Limits", "management"],
  ["definitions", "Definitions", "administrator"],
  ["feature-flags", "Feature flags", "management"],
];

/** First parts of URLs that belong to Admin. */
export const ADMIN = new Set(PARTS.map(([part]) => part));

export function Admin({ route }) {
  const [tab, ...names] = route;
  const shown = PARTS.filter(([, , tag]) => may(tag));
  const part = shown.some(([each]) => each === tab) ? tab : shown[0][0];
  return html`
    <nav class="subnav" aria-label="Admin">${shown.map(([each, title]) => html`<a href=${`#/${each}`} class=${each === part ? "on" : ""} aria-current=${each === part ? "page" : null}>${title}</a>`)}</nav>
    <${Part} part=${part} names=${names} />`;
}

function Part({ part, names }) {
  if (part === "users") return names.length ? html`<${User} name=${names[0]} />` : html`<${Users} />`;
  if (part === "vhosts") return names.length ? html`<${Vhost} name=${names[0]} />` : html`<${Vhosts} />`;
  if (part === "policies") return html`<${Policies} chosen=${names} />`;
  if (part === "limits") return html`<${Limits} />`;
  if (part === "definitions") return html`<${Definitions} />`;
  return html`<${Features} />`;
}
