// Browsing: the messages of a queue or stream, filtered and decoded. They stay where and as they are.

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { get, may } from "../api.js";
import { Choice, Facts, Fold, Scroll } from "../elements.js";
import { bytes, clock, count, counted, plain } from "../format.js";
import { Form } from "../form.js";

const PAGE = 20;
const WHOLE = 65_536; // the most that the API shows of a body
const BUSY_MS = 1_100; // until others that look through messages may be done
const LINE = 16;
const FORMATS = { json: "JSON", msgpack: "MessagePack", text: "text", binary: "binary", empty: "no body" };
const WAYS = [["first", "the oldest message"], ["last", "the last messages written"], ["offset", "an offset"], ["age", "an age"], ["time", "a time"]];
const PATTERN = "A text, or a pattern between slashes: /^a.*b$/";

/** The part of a queue's page that looks through its messages; nothing for who may not. */
export function Browse({ queue, where }) {
  if (!may("browser")) return null;
  return html`<div id="browse"><${Fold} title="Browse messages">${() => html`<${Browsing} queue=${queue} where=${where} />`}<//></div>`;
}

/** Open that part, from anywhere on the page. */
export function showBrowse() {
  const part = document.querySelector("#browse details");
  part.open = true;
  part.scrollIntoView({ block: "start", behavior: "smooth" });
  part.querySelector("summary").focus({ preventScroll: true });
}

function Browsing({ queue, where }) {
  const isStream = queue.type === "stream";
  const [asked, setAsked] = useState(null);
  const [earlier, setEarlier] = useState([]); // where the pages before this one began
  const [begun, setBegun] = useState(null);
  const search = useSearch(where);
  const { found } = search;
  const look = (query, after, before) => {
    setAsked(query);
    setEarlier(before);
    setBegun(after);
    return search.run(query, after);
  };
  useEffect(() => {
    look(queryOf({}, isStream), null, []);
  }, [where]);
  return html`
    <p class="sub">Messages stay where they are: nothing is taken, redelivered or counted. What consumers hold is not shown.</p>
    <div class="browse"><${Form} fields=${fieldsFor(isStream)} label="Search" submit=${(values) => look(queryOf(values, isStream), null, [])} /></div>
    ${found ? html`
      <p class=${found.error ? "problem" : "sub"} role=${found.error ? "alert" : "status"}>${found.error ?? told(found)}</p>
      ${found.rows.map((row) => html`<${Found} key=${row.token} row=${row} where=${where} />`)}
      <div class="row pages">
        ${earlier.length ? html`<button class="btn" disabled=${found.isBusy} onClick=${() => look(asked, earlier.at(-1), earlier.slice(0, -1))}>Back</button>` : null}
        ${found.isBusy ? html`<button class="btn" onClick=${search.stop}>Stop</button>` : null}
        ${!found.isBusy && found.next ? html`<button class="btn p" onClick=${() => look(asked, found.next, [...earlier, begun])}>${found.rows.length < PAGE ? "Search on" : `Next ${PAGE}`}</button>` : null}
      </div>` : null}`;
}

function fieldsFor(isStream) {
  const from = isStream
    ? [
        { name: "from", label: "From", type: "select", options: WAYS },
        { name: "offset", label: "Offset", type: "number", min: 0, required: true, when: ({ from: way }) => way === "offset" },
        { name: "age", label: "Age", value: "10m", required: true, hint: "10m, 2h, 7D", when: ({ from: way }) => way === "age" },
        { name: "time", label: "Time", type: "datetime-local", required: true, when: ({ from: way }) => way === "time" },
      ]
    : [{ name: "position", label: "From position", type: "number", min: 1, placeholder: "1, the head" }];
  return [
    ...from,
    { name: "key", label: "Routing key", hint: PATTERN },
    { name: "header", label: "Header", placeholder: "name=value", hint: "name alone: it is there" },
    { name: "body", label: "Body has", hint: PATTERN },
    { name: "json", label: "JSON path", placeholder: "order.items[0].sku=A1", hint: "in JSON and MessagePack" },
  ];
}

/** The API's query for what the form says. */
function queryOf(values, isStream) {
  const query = new URLSearchParams();
  const add = (key, value) => {
    if (value) query.append(key, value);
  };
  for (const key of ["key", "body"]) {
    const pattern = /^\/(.+)\/$/s.exec(values[key] ?? "");
    add(pattern ? `${key}_regex` : key, pattern ? pattern[1] : values[key]);
  }
  add("header", values.header);
  add("json", values.json);
  if (!isStream) add("position", values.position);
  else if (values.from === "time") add("timestamp", String(Date.parse(values.time)));
  else add("offset", values[values.from] ?? values.from);
  return query;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** One search at a time: it asks on until a page is full, all was looked at, or one stops it. */
function useSearch(where) {
  const [found, setFound] = useState(null);
  const turn = useRef(0);
  const run = async (query, after) => {
    turn.current += 1;
    const mine = turn.current;
    let sofar = { rows: [], scanned: 0, partly: 0, unreadable: 0, next: after, isBusy: true, error: null };
    const show = (change) => {
      sofar = { ...sofar, ...change };
      if (turn.current === mine) setFound(sofar);
      return turn.current === mine;
    };
    show({});
    let isBusyThere = false;
    do {
      isBusyThere = false;
      const asked = new URLSearchParams(query);
      asked.set("count", PAGE - sofar.rows.length);
      if (sofar.next) asked.set("after", sofar.next);
      try {
        const answer = await get(`${where}/browse?${asked}`);
        show({
          rows: [...sofar.rows, ...answer.messages],
          scanned: sofar.scanned + answer.scanned,
          partly: sofar.partly + answer.searched_in_part,
          unreadable: sofar.unreadable + answer.unreadable,
          next: answer.next,
        });
      } catch (error) {
        if (error.status !== 429) {
          show({ isBusy: false, error: error.message });
          return;
        }
        isBusyThere = true;
        await pause(BUSY_MS);
      }
    } while (turn.current === mine && (sofar.next || isBusyThere) && sofar.rows.length < PAGE);
    show({ isBusy: false });
  };
  const stop = () => {
    turn.current += 1;
    setFound((before) => before && { ...before, isBusy: false });
  };
  useEffect(() => () => {
    turn.current += 1;
  }, [where]);
  return { found, run, stop };
}

/** What was looked at and what came of it. */
function told({ rows, scanned, partly, unreadable, next, isBusy }) {
  if (isBusy && !scanned) return "Looking…";
  const parts = [`${counted(rows.length, "message")} of ${count(scanned)} looked at`];
  if (partly) parts.push(`${counted(partly, "body").replace("bodys", "bodies")} searched only at the beginning`);
  if (unreadable) parts.push(`${count(unreadable)} could not be read from disk: the node's log says why`);
  return `${parts.join("; ")}.${isBusy ? " Searching on…" : next ? "" : " That is the end."}`;
}

const nameOf = (row) => (row.offset === undefined ? `Message ${count(row.number)}` : `Offset ${count(row.offset)}`);

function Found({ row, where }) {
  const [isOpen, setOpen] = useState(false);
  const beginning = (row.decoded ?? (row.payload_encoding === "string" ? row.payload : "")).replace(/\s+/g, " ").slice(0, 160);
  const marks = [bytes(row.payload_bytes), FORMATS[row.format], row.compression, row.redelivered && "redelivered", row.timestamp_ms && clock(row.timestamp_ms), row.masked.length && "masked"];
  return html`
    <details class="found" onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary><b>${nameOf(row)}</b> <bdi>${row.routing_key}</bdi> <span class="sub">${marks.filter(Boolean).join(", ")}</span><span class="start sub" dir="auto">${beginning}</span></summary>
      ${isOpen ? html`<${Detail} first=${row} where=${where} />` : null}
    </details>`;
}

function Detail({ first, where }) {
  const [row, setRow] = useState(first);
  const [problem, setProblem] = useState(null);
  const [view, setView] = useState(first.decoded === null ? "sent" : "decoded");
  const { headers, ...others } = row.properties;
  const views = [row.decoded !== null && ["decoded", "Decoded"], row.payload !== null && ["sent", row.payload_encoding === "base64" ? "Bytes" : "As sent"]].filter(Boolean);
  const isCut = view === "decoded" ? row.decoded_cut : row.payload_cut;
  const isHex = view === "sent" && row.payload_encoding === "base64";
  const shown = view === "decoded" ? row.decoded : isHex ? hex(row.payload) : row.payload;
  const more = async () => {
    try {
      setRow((await get(`${where}/browse?at=${encodeURIComponent(row.token)}&truncate=${WHOLE}`)).messages[0]);
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`
    ${views.length > 1 ? html`<${Choice} label="Body as" options=${views} value=${view} onChange=${setView} />` : null}
    ${shown ? html`<${Scroll} tag="pre" class=${isHex ? "body hex" : "body"} label="body" dir="auto">${shown}<//>` : null}
    ${row.problem ? html`<p class="sub">Body: ${row.problem}.</p>` : null}
    ${isCut ? html`<div class="row"><span class="sub">Only the beginning of ${bytes(row.payload_bytes)}.</span>${row === first ? html`<button class="btn small" onClick=${more}>Show more of it</button>` : null}</div>` : null}
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    ${row.masked.length ? html`<p class="sub">Hidden by the node's settings: ${row.masked.join(", ")}.</p>` : null}
    <${Facts} rows=${[
      ["exchange", row.exchange || "(default)"], ["routing key", row.routing_key],
      row.redelivered ? ["delivered before", `${count(row.delivery_count)}×`] : null,
      ...Object.entries(others).map(([key, value]) => [key, plain(value)]),
      ...Object.entries(typeof headers === "object" ? headers : {}).map(([key, value]) => [`header ${key}`, plain(value)]),
      row.properties_cut ? ["properties", "too many to be shown"] : null,
    ]} />`;
}

/** Bytes as people read them: where, sixteen of them, and as letters where they are some. */
function hex(base64) {
  const data = Array.from(atob(base64), (each) => each.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < data.length; at += LINE) {
    const part = data.slice(at, at + LINE);
    const digits = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(3 * LINE - 1)}  ${letters}`);
  }
  return lines.join("\n");
}
