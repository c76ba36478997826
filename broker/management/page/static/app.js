// The shell: routes with RabbitMQ's URLs, navigation, search, theme, and who is logged in.

import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { get, hasEnded, logout, may, path, recognise, useAsked, useLive, whenExpired, whoami } from "./api.js";
import { closeAll, Dialogs, isOpen, notify, open } from "./dialog.js";
import { Menu, State } from "./elements.js";
import { Login, LoginForm } from "./login.js";
import { Overview } from "./pages/overview.js";
import { Connections, Connection } from "./pages/connections.js";
import { Channels, Channel } from "./pages/channels.js";
import { Exchanges, Exchange } from "./pages/exchanges.js";
import { Queues } from "./pages/queues.js";
import { Queue } from "./pages/queue.js";
import { Cluster, Node } from "./pages/cluster.js";
import { Admin, ADMIN } from "./pages/admin.js";

const TABS = [
  ["", "Overview", "management"],
  ["connections", "Connections", "management"],
  ["channels", "Channels", "management"],
  ["exchanges", "Exchanges", "management"],
  ["queues", "Queues and Streams", "management"],
  ["cluster", "Cluster", "monitoring"],
  ["admin", "Admin", "management"],
];

/** The parts of a hash: "#/queues/%2F/a%20b" is ["queues", "/", "a b"]; what is not encoded is taken as it is. */
export function parts(hash) {
  return hash.replace(/^#?\/?/, "").split("?")[0].split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useLayoutEffect(() => { // not later: the address may change as soon as the page is seen
    const moved = () => {
      closeAll(); // what a dialog is about belongs to the page that was left
      setHash(location.hash);
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return parts(hash);
}

function Page({ route }) {
  const [tab, ...names] = route;
  if (tab === "") return html`<${Overview} />`;
  if (tab === "connections") return names.length ? html`<${Connection} name=${names[0]} />` : html`<${Connections} />`;
  if (tab === "channels") return names.length ? html`<${Channel} name=${names[0]} />` : html`<${Channels} />`;
  if (tab === "exchanges") return names.length > 1 ? html`<${Exchange} vhost=${names[0]} name=${names[1]} />` : html`<${Exchanges} />`;
  if (tab === "queues") return names.length > 1 ? html`<${Queue} key=${names.join("/")} vhost=${names[0]} name=${names[1]} />` : html`<${Queues} />`;
  if (tab === "cluster") return html`<${Cluster} />`;
  if (tab === "nodes" && names.length) return html`<${Node} name=${names[0]} />`;
  if (tab === "admin" || ADMIN.has(tab)) return html`<${Admin} route=${route} />`;
  return html`<div class="card empty"><b>There is no page “${route.join("/")}”.</b> <a href="#/">Overview</a></div>`;
}

function Guarded({ route }) {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  const where = route.join("/");
  useEffect(() => reset(), [where]);
  if (!error) return html`<${Page} route=${route} />`;
  return html`<div class="card empty" role="alert"><b>This page could not be drawn: ${error.message}</b><div class="row"><button class="btn" onClick=${reset}>Try again</button></div></div>`;
}

function title(route) {
  const [tab, ...names] = route;
  const name = names.filter(Boolean).at(-1) ?? TABS.find(([each]) => each === tab)?.[1] ?? tab;
  return `${name} · WarrenMQ`;
}

const THEMES = [["system", "Theme: as the system"], ["light", "Theme: light"], ["dark", "Theme: dark"]];

function setTheme(theme) {
  if (theme === "system") {
    localStorage.removeItem("theme");
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem("theme", theme);
    document.documentElement.dataset.theme = theme;
  }
  document.dispatchEvent(new Event("themechange"));
}

function Nodes() {
  const { value, error } = useLive(may("monitoring") ? "/nodes?columns=name,running,mem_alarm,disk_free_alarm,being_drained" : null);
  if (error && !value) return html`<a class="pill" href="#/cluster"><${State} level="bad">node does not answer<//></a>`;
  if (!value) return null;
  const running = value.filter((node) => node.running);
  const alarms = running.filter((node) => node.mem_alarm || node.disk_free_alarm);
  const level = running.length < value.length || error ? "bad" : alarms.length ? "warn" : "ok";
  const words = alarms.length ? `${alarms.length === 1 ? "alarm at 1 node" : `alarms at ${alarms.length} nodes`}` : `${running.length} of ${value.length} node${value.length === 1 ? "" : "s"}`;
  return html`<a class="pill" href="#/cluster"><${State} level=${level}>${words}<//></a>`;
}

async function found(text) {
  const query = `page=1&page_size=5&name=${encodeURIComponent(text)}`;
  const kinds = [
    ["queue", "/queues", "name,vhost", (each) => `#${path("queues", each.vhost, each.name)}`, (each) => each.name],
    ["exchange", "/exchanges", "name,vhost", (each) => `#${path("exchanges", each.vhost, each.name || "amq.default")}`, (each) => each.name || "amq.default"],
    ["connection", "/connections", "name,vhost,user_provided_name", (each) => `#${path("connections", each.name)}`, (each) => each.user_provided_name || each.name],
  ];
  const pages = TABS.filter(([, name, tag]) => may(tag) && name.toLowerCase().includes(text.toLowerCase()))
    .map(([tab, name]) => ({ kind: "page", href: `#/${tab}`, name, vhost: "" }));
  const answers = await Promise.all(kinds.map(async ([kind, where, columns, href, name]) => {
    try {
      const { items } = await get(`${where}?${query}&columns=${columns}`);
      return items.map((each) => ({ kind, href: href(each), name: name(each), vhost: each.vhost }));
    } catch {
      return []; // a kind that the user may not list
    }
  }));
  return [...pages, ...answers.flat()];
}

function Search() {
  const input = useRef(null);
  const [text, setText] = useState("");
  const [results, setResults] = useState(null);
  const [chosen, setChosen] = useState(0);
  useEffect(() => {
    const slash = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest?.("input, textarea, select, dialog, [contenteditable]")) return;
      event.preventDefault();
      input.current.focus();
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);
  useEffect(() => {
    if (!text) {
      setResults(null);
      return undefined;
    }
    let over = false;
    const timer = setTimeout(async () => {
      const next = await found(text);
      if (over) return;
      setResults(next);
      setChosen(0);
    }, 150);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [text]);
  const close = () => {
    setText("");
    input.current.blur();
  };
  const onKeyDown = (event) => {
    if (event.key === "Escape") close();
    if (!results?.length) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setChosen((chosen + (event.key === "ArrowDown" ? 1 : -1) + results.length) % results.length);
    }
    if (event.key === "Enter") {
      location.hash = results[chosen].href;
      close();
    }
  };
  return html`
    <div class="search" role="search">
      <input ref=${input} type="search" placeholder="Find a queue, exchange, client…" aria-label="Find a queue, exchange or client" role="combobox" aria-expanded=${Boolean(results)} aria-controls="found" aria-activedescendant=${results?.length ? `found-${chosen}` : null} autocomplete="off"
        value=${text} onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${onKeyDown} onBlur=${() => setTimeout(() => setResults(null), 200)} />
      <kbd aria-hidden="true">/</kbd>
      ${results ? html`
        <div id="found" role="listbox" aria-label="What was found">${results.length ? results.map((each, index) => html`
          <a key=${each.href} id=${`found-${index}`} href=${each.href} role="option" aria-selected=${index === chosen} tabindex="-1" onPointerDown=${() => {
            location.hash = each.href;
            close();
          }}><bdi>${each.name}</bdi> <span class="sub">${each.kind}${each.vhost && each.vhost !== "/" ? `, vhost ${each.vhost}` : ""}</span></a>`)
          : html`<span class="sub" role="option" aria-selected="false">Nothing has “${text}” in its name.</span>`}
        </div>` : null}
    </div>`;
}

function Shell({ onLogout }) {
  const route = useRoute();
  const nav = useRef(null);
  const tab = ADMIN.has(route[0]) ? "admin" : route[0] === "nodes" ? "cluster" : route[0];
  useEffect(() => {
    document.title = title(route);
    nav.current?.querySelector(".on")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [route.join("/")]);
  const cluster = useAsked("/cluster-name").value?.name;
  return html`
    <a class="skip" href="#content" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("content").focus();
    }}>Skip to the content</a>
    <header>
      <a class="logo" href="#/" title=${cluster ? `Cluster ${cluster}` : null}>WarrenMQ</a>
      <nav ref=${nav} aria-label="Pages">${TABS.filter(([, , tag]) => may(tag)).map(([each, name]) => html`
        <a href=${`#/${each}`} class=${each === tab ? "on" : ""} aria-current=${each === tab ? "page" : null}>${name}</a>`)}</nav>
      <${Search} />
      <${Nodes} />
      <${Menu} label=${`User ${whoami().name}`} text=${html`<bdi>${whoami().name}</bdi>`} acts=${[
        ...THEMES.map(([theme, words]) => [words, () => setTheme(theme)]),
        ["Log out", onLogout],
      ]} />
    </header>
    <main id="content" tabindex="-1"><${Guarded} route=${route} /></main>`;
}

function App() {
  const [user, setUser] = useState(undefined);
  const [why, setWhy] = useState("");
  const look = async () => {
    try {
      setUser(await recognise());
      setWhy("");
    } catch (error) {
      setWhy(`${error.message}. Trying again.`);
      setTimeout(look, 2000);
    }
  };
  // A login above the form that is being filled in, so that nothing of it is lost; true if it is the same user's.
  const again = () => open("Log in again", (close) => html`
    <p class="ask">The session has ended. What is in the form below stays.</p>
    <${LoginForm} cancel=${() => close(false)} onLogin=${async () => {
      const before = whoami().name;
      const found = await recognise();
      close(found?.name === before);
    }} />`);
  useEffect(() => {
    look();
    let isAsking = false;
    return whenExpired(async () => {
      if (isAsking || whoami() === null) return;
      isAsking = true;
      try {
        if (!(await hasEnded())) return; // what was refused is older than a login
        if (isOpen() && (await again())) return;
        closeAll();
        setWhy("The session has ended. Log in again; you come back to this page.");
        setUser(await recognise());
      } catch {
        // the node does not answer: what is shown says so
      } finally {
        isAsking = false;
      }
    });
  }, []);
  const onLogout = async () => {
    try {
      await logout();
      setWhy("");
      setUser(null);
    } catch (error) {
      notify(error.message, { failed: true });
    }
  };
  if (user === undefined) return html`<main class="login"><p class="sub" role="status">${why || "One moment…"}</p></main>`;
  return html`${user ? html`<${Shell} key=${user.name} onLogout=${onLogout} />` : html`<${Login} why=${why} onLogin=${look} />`}<${Dialogs} />`;
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
render(html`<${App} />`, document.getElementById("page"));
