// Tables: lists that the server pages, sorts and filters, and short ones that are sorted here.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { useLive } from "./api.js";
import { Loaded, Scroll } from "./elements.js";
import { count } from "./format.js";

const SIZES = [50, 100, 200, 500];
const TYPING_MS = 30; // letters that come closer together are asked for once
const FIRST_ROWS = 30; // what a window shows; the rest follows when it has been painted
const AGES_MS = 5_000; // rows are drawn anew at least so often: some cells tell how old something is

const kept = new Map();

/** State of a list that survives leaving its page. */
function useKept(id, first) {
  const [value, setValue] = useState(() => kept.get(id) ?? first);
  const set = (change) => {
    setValue((before) => {
      const next = { ...before, ...change };
      kept.set(id, next);
      return next;
    });
  };
  return [value, set];
}

function Head({ columns, sort, reverse, onSort }) {
  return html`
    <thead><tr>${columns.map((column) => {
      const isSorted = column.sort !== undefined && column.sort === sort;
      const order = isSorted ? (reverse ? "descending" : "ascending") : null;
      return html`
        <th key=${column.title} scope="col" class=${classes(column)} aria-sort=${order}>
          ${column.sort === undefined ? column.title : html`
            <button class="sort" title=${column.hint} onClick=${() => onSort(column)}>${column.title}<span aria-hidden="true">${isSorted ? (reverse ? " ↓" : " ↑") : ""}</span></button>`}
        </th>`;
    })}</tr></thead>`;
}

function classes(column) {
  return `${column.number ? "n" : ""} ${column.secondary ? "secondary" : ""} ${column.class ?? ""}`.trim() || null;
}

/**
 * Keys for rows, under which Preact keeps their elements: a map from their ids.
 *
 * While `asked` stays, a row keeps its own. Rows of another question take over the elements of those that went: to change texts costs less than to make rows.
 */
function keysOf(ids, asked, shown) {
  const wanted = new Set(ids);
  const free = asked === shown.asked ? [] : [...shown.keys.keys()].filter((id) => !wanted.has(id)).map((id) => shown.keys.get(id)).reverse();
  return new Map(ids.map((id) => [id, shown.keys.get(id) ?? free.pop() ?? shown.made++]));
}

function Body({ rows, columns, keyOf, asked }) {
  const shown = useRef({ asked, keys: new Map(), made: 0 });
  const [isWhole, setWhole] = useState(rows.length <= FIRST_ROWS);
  useEffect(() => {
    setWhole(true);
  }, []);
  // As long as this returns the same, Preact does not look at the rows.
  return useMemo(() => {
    const keys = keysOf(rows.map(keyOf), asked, shown.current);
    Object.assign(shown.current, { asked, keys });
    return html`
      <tbody>${(isWhole ? rows : rows.slice(0, FIRST_ROWS)).map((row) => html`
        <tr key=${keys.get(keyOf(row))}>${columns.map((column) => html`<td key=${column.title} class=${classes(column)}>${column.show(row)}</td>`)}</tr>`)}
      </tbody>`;
  }, [rows, columns, asked, isWhole, Math.floor(Date.now() / AGES_MS)]);
}

function next(column, sort, reverse) {
  if (column.sort === sort) return { sort, reverse: !reverse };
  return { sort: column.sort, reverse: Boolean(column.number) };
}

/**
 * A list that the server pages: it filters as one types, sorts by a click on a heading and keeps its place.
 *
 * columns: `{title, show(row), sort, number, secondary, hint}`; `sort` is a key of the API.
 */
export function Listing({ id, path, columns, keyOf, what, order, empty, filterHint = "Filter by name", aside, keys }) {
  const [state, set] = useKept(id, { page: 1, size: 100, name: "", regex: false, sort: order?.[0] ?? "", reverse: order?.[1] ?? false });
  const [typed, setTyped] = useState(state.name);
  const typedAt = useRef(-Infinity);
  const type = (text) => {
    const isFirst = performance.now() - typedAt.current > TYPING_MS;
    typedAt.current = performance.now();
    setTyped(text);
    if (isFirst) set({ name: text, page: 1 });
  };
  useEffect(() => {
    if (typed === state.name) return undefined;
    const timer = setTimeout(() => set({ name: typed, page: 1 }), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const query = new URLSearchParams({ page: state.page, page_size: state.size });
  if (state.name) {
    query.set("name", state.name);
    query.set("use_regex", state.regex);
  }
  if (state.sort) {
    query.set("sort", state.sort);
    query.set("sort_reverse", state.reverse);
  }
  if (keys) query.set("columns", keys);
  const asked = `${path}?${query}`;
  const fresh = useLive(asked);
  const [last, setLast] = useState(null);
  useEffect(() => {
    if (fresh.value) setLast({ path, asked, value: fresh.value });
  }, [fresh.value]);
  useEffect(() => {
    if (fresh.value && state.page > 1 && !fresh.value.items.length) set({ page: Math.max(1, fresh.value.page_count) });
  }, [fresh.value]);
  // A new order or filter shows the old rows until the new ones are there: nothing jumps.
  const isOld = fresh.value === undefined && last?.path === path;
  const live = isOld ? { ...fresh, value: last.value } : fresh;
  return html`
    <section class="card list" aria-label=${what}>
      <div class="row tools">
        <input type="search" class="filter" placeholder=${filterHint} aria-label=${filterHint} value=${typed} onInput=${(event) => type(event.currentTarget.value)} />
        <label class="check"><input type="checkbox" checked=${state.regex} onChange=${(event) => set({ regex: event.currentTarget.checked, page: 1 })} /> Regex</label>
        <span class="grow"></span>${aside}
      </div>
      <${Loaded} of=${live} what=${what} rows=${8}>${(value) => html`
        ${value.items.length === 0 ? html`<p class="empty">${value.total_count ? `None of ${count(value.total_count)} matches.` : empty}</p>` : html`
          <${Scroll} label=${what}><table>
            <${Head} columns=${columns} sort=${state.sort} reverse=${state.reverse} onSort=${(column) => set({ ...next(column, state.sort, state.reverse), page: 1 })} />
            <${Body} rows=${value.items} columns=${columns} keyOf=${keyOf} asked=${isOld ? last.asked : asked} />
          </table><//>`}
        <${Pages} value=${value} size=${state.size} set=${set} />`}
      <//>
    </section>`;
}

function Pages({ value, size, set }) {
  const { page, page_count: pages, filtered_count: filtered, total_count: total } = value;
  const first = (page - 1) * value.page_size + 1;
  const words = filtered ? `${count(first)} to ${count(first + value.items.length - 1)} of ${count(filtered)}` : "0";
  return html`
    <div class="row pages sub">
      <span class="grow">${words}${filtered === total ? "" : `, ${count(total)} without the filter`}</span>
      ${pages > 1 || size !== 100 ? html`
        <label class="check">Rows <select value=${size} onChange=${(event) => set({ size: Number(event.currentTarget.value), page: 1 })}>${SIZES.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>` : null}
      ${pages > 1 ? html`
        <button class="btn" disabled=${page <= 1} onClick=${() => set({ page: page - 1 })}>Previous</button>
        <span>Page ${count(page)} of ${count(pages)}</span>
        <button class="btn" disabled=${page >= pages} onClick=${() => set({ page: page + 1 })}>Next</button>` : null}
    </div>`;
}

/** A short list, sorted here; `by(row)` of a column gives what it is sorted by. */
export function Table({ rows, columns, keyOf, empty, order }) {
  const [state, setState] = useState({ sort: order?.[0], reverse: order?.[1] ?? false });
  const shown = useMemo(() => columns.map((column) => ({ ...column, sort: column.by ? column.title : undefined })), [columns]);
  const by = columns.find((column) => column.title === state.sort)?.by;
  const sorted = by ? [...rows].sort((one, other) => compare(by(one), by(other)) * (state.reverse ? -1 : 1)) : rows;
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`
    <${Scroll} label="table"><table>
      <${Head} columns=${shown} ...${state} onSort=${(column) => setState(next(column, state.sort, state.reverse))} />
      <${Body} rows=${sorted} columns=${columns} keyOf=${keyOf} />
    </table><//>`;
}

function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one ?? "").localeCompare(String(other ?? ""));
}
