// Small pieces that every page uses: cards, figures, badges, states, menus, and how loading and failing look.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { useNow } from "./api.js";
import { lasting, NOTHING, plain, rate } from "./format.js";

/** A card with a heading; what stands right of it is `aside`. */
export function Card({ title, aside, children, class: more = "" }) {
  return html`
    <section class=${`card ${more}`} aria-label=${title}>
      ${title || aside ? html`<div class="row head"><h2 class="grow">${title}</h2>${aside}</div>` : null}
      ${children}
    </section>`;
}

/** One figure: its name, the number, and what explains it. */
export function Figure({ title, value, unit, sub }) {
  return html`
    <section class="card figure" aria-label=${title}>
      <h2>${title}</h2>
      <div class="num">${value}${unit ? html` <span class="unit">${unit}</span>` : null}</div>
      ${sub === undefined ? null : html`<div class="sub">${sub}</div>`}
    </section>`;
}

/** A short mark with its meaning as a tooltip. */
export function Badge({ text, title }) {
  return html`<span class="badge" title=${title}>${text}</span>`;
}

/** The colour of a state with its word; level is "ok", "warn", "bad" or "off". */
export function State({ level, children }) {
  return html`<span class="state"><span class=${`dot ${level}`} aria-hidden="true"></span>${children}</span>`;
}

/** A number per second, "–" where nothing was counted. */
export function Rate({ value }) {
  return Number.isFinite(value) ? html`${rate(value)}<span class="unit"> /s</span>` : NOTHING;
}

/** How much of something is used: a bar and its words. */
export function Bar({ share, words, level = "ok" }) {
  const percent = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return html`<div class="used"><div class="bar"><i class=${level} style=${{ width: percent }}></i></div><span class="sub">${words}</span></div>`;
}

/** What is old, and what failed: one line on top of a page whose data is not fresh. */
export function Freshness({ of }) {
  const now = useNow();
  if (of.error && of.value === undefined) return null;
  if (of.error) {
    return html`<p class="stale" role="status">Not fresh: ${of.error.message}. ${of.at ? `Shown is what was true ${lasting(now - of.at)} ago. ` : ""}Trying again.</p>`;
  }
  if (of.stale) return html`<p class="stale" role="status">Shown is what was true ${lasting(now - of.at)} ago. Waiting for the node.</p>`;
  return null;
}

/** A live value: a skeleton until it is there, what failed if it never was, else the children's content. */
export function Loaded({ of, what, rows = 3, missing, children }) {
  if (of.value !== undefined) return html`<${Freshness} of=${of} />${children(of.value)}`;
  if (!of.error) {
    return html`<div class="skeleton card" role="status" aria-busy="true" aria-label=${`Loading ${what}`}>${Array.from({ length: rows }, () => html`<i></i>`)}</div>`;
  }
  if (of.error.status === 404 && missing) return html`<div class="card empty">${missing}</div>`;
  if (of.error.status === 403 || of.error.status === 401) {
    return html`<div class="card empty"><b>Your user may not see ${what}.</b><div class="sub">${of.error.message}</div></div>`;
  }
  return html`<div class="card empty" role="alert"><b>Could not read ${what}: ${of.error.message}.</b><div class="sub">Trying again.</div></div>`;
}

/** Keys with their values; a value that is undefined is left out. */
export function Facts({ rows }) {
  return html`
    <dl class="facts">${rows.filter((row) => row && row[1] !== undefined && row[1] !== null).map(([key, value]) => html`
      <div key=${key}><dt>${key}</dt><dd>${typeof value === "object" && !value.type && !Array.isArray(value) ? plain(value) : value}</dd></div>`)}
    </dl>`;
}

/** An object of JSON, a row for each key. */
export function Json({ value, none = "none" }) {
  const entries = Object.entries(value ?? {});
  if (!entries.length) return html`<span class="sub">${none}</span>`;
  return html`<ul class="json">${entries.map(([key, each]) => html`<li key=${key}><span class="sub">${key}</span> <bdi>${plain(each)}</bdi></li>`)}</ul>`;
}

/** A button that opens a list of further acts: [label, what it does, is it dangerous]. */
export function Menu({ acts, label = "More", text = "⋯" }) {
  const [isOpen, setOpen] = useState(false);
  const element = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    element.current.querySelector("[role=menuitem]")?.focus();
    const outside = (event) => {
      if (event.key === "Escape" || (event.type === "pointerdown" && !element.current.contains(event.target))) setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("keydown", outside);
    };
  }, [isOpen]);
  const step = (event) => {
    const items = [...element.current.querySelectorAll("[role=menuitem]")];
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    items[(items.indexOf(document.activeElement) + by + items.length) % items.length]?.focus();
  };
  const shown = acts.filter(Boolean);
  if (!shown.length) return null;
  return html`
    <div class="menu" ref=${element} onKeyDown=${step}>
      <button class="btn" aria-haspopup="menu" aria-expanded=${isOpen} aria-label=${label} onClick=${() => setOpen(!isOpen)}>${text}</button>
      ${isOpen ? html`<div role="menu">${shown.map(([each, run, danger]) => html`
        <button role="menuitem" class=${danger ? "danger" : ""} onClick=${() => {
          setOpen(false);
          run();
        }}>${each}</button>`)}</div>` : null}
    </div>`;
}

/** What scrolls in a box of its own; where it does, the keyboard reaches it. */
export function Scroll({ tag = "div", class: kind = "scroll", label, children, ...more }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    const box = element.current;
    const look = () => {
      const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
      if (scrolls) box.setAttribute("tabindex", "0");
      else box.removeAttribute("tabindex");
    };
    // It looks once after each layout that a render has led to: to look right here would lay out twice.
    const sizes = new ResizeObserver(look);
    sizes.observe(box);
    return () => sizes.disconnect();
  });
  return html`<${tag} ref=${element} class=${kind} role="group" aria-label=${label} ...${more}>${children}<//>`;
}

/** Choices of which one holds: [value, label]. */
export function Choice({ label, options, value, onChange }) {
  return html`
    <div class="choice" role="group" aria-label=${label}>${options.map(([each, text]) => html`
      <button aria-pressed=${each === value} onClick=${() => onChange(each)}>${text}</button>`)}
    </div>`;
}

/** A part of a page that opens when one asks for it; children is called only then. */
export function Fold({ title, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`
    <details class="card fold" open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary><h2>${title}</h2></summary>
      ${isOpen ? children() : null}
    </details>`;
}
