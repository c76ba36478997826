// Names as links, and the choice of a virtual host. Every address is encoded here.

import { html, useEffect, useState } from "./vendor/preact.js";
import { path, useAsked } from "./api.js";
import { node } from "./format.js";

/** The default exchange's name in addresses. */
export const DEFAULT_EXCHANGE = "amq.default";

/** "#/queues/%2F/orders". */
export const href = (...names) => `#${path(...names)}`;

export const QueueLink = ({ vhost, name, withVhost }) => html`<a href=${href("queues", vhost, name)} title=${name}><bdi>${name}</bdi></a>${withVhost ? html` <span class="sub">${vhost}</span>` : null}`;

export const ExchangeLink = ({ vhost, name }) => html`<a href=${href("exchanges", vhost, name || DEFAULT_EXCHANGE)} title=${name}><bdi>${name || "(default)"}</bdi></a>`;

export const ConnectionLink = ({ name, title }) => html`<a href=${href("connections", name)} title=${name}><bdi>${title || name}</bdi></a>`;

export const ChannelLink = ({ name }) => html`<a href=${href("channels", name)} title=${name}><bdi>${name}</bdi></a>`;

export const NodeLink = ({ name }) => (name ? html`<a href=${href("nodes", name)} title=${name}><bdi>${node(name)}</bdi></a>` : "–");

const ALL = "";
let chosen = sessionStorage.getItem("vhost") ?? ALL;

/** The virtual host that lists show, "" for all, and its choice: `[vhost, choice, names]`. */
export function useVhost() {
  const [vhost, setVhost] = useState(chosen);
  const { value } = useAsked("/vhosts?columns=name");
  const names = (value ?? []).map(({ name }) => name);
  const gone = Boolean(value) && vhost !== ALL && !names.includes(vhost);
  const set = (next) => {
    chosen = next;
    sessionStorage.setItem("vhost", next);
    setVhost(next);
  };
  useEffect(() => {
    if (gone) set(ALL);
  }, [gone]);
  const choice = names.length < 2 ? null : html`
    <label class="check">Virtual host <select value=${vhost} onChange=${(event) => set(event.currentTarget.value)}>
      <option value="">All</option>${names.map((name) => html`<option value=${name} selected=${name === vhost}>${name}</option>`)}
    </select></label>`;
  return [gone ? ALL : vhost, choice, names];
}

/** The path of a listing: of one virtual host, or of all. */
export const within = (listing, vhost) => (vhost === ALL ? `/${listing}` : `/${listing}${path(vhost)}`);
