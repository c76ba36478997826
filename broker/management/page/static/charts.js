// Charts over time with uPlot: few lines, a legend, marks for the events that explain them, gaps where nothing is known.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import uPlot from "./vendor/uplot.js";
import { useAsked } from "./api.js";
import { Choice } from "./elements.js";
import { bytes, clock, count, lasting, minute, rate } from "./format.js";

/** Ranges of the past that nodes keep: [seconds, seconds between two samples, words]. */
export const RANGES = [[60, 1, "1 min"], [600, 10, "10 min"], [3600, 60, "1 h"]];
const DAY = [86_400, 600, "24 h"];
const LINES = ["--s1", "--s2", "--s3", "--s4"];
const WORDS = { count, rate: (value) => `${rate(value)} /s`, bytes };

const marks = new Map();

/** Remember an event of an object for its charts: "leader moved node1 → node2". */
export function mark(object, text, at = Date.now()) {
  const found = marks.get(object) ?? [];
  if (found.some((each) => each.text === text && Math.abs(each.at - at) < 2000)) return;
  marks.set(object, [...found.slice(-19), { at, text }]);
}

/** The events of an object since `from` ms. */
export function marksOf(object, from = 0) {
  return (marks.get(object) ?? []).filter((each) => each.at >= from);
}

/** Ask for the past of an object of the API in the range that one chooses; `{chosen, choice, past}`. */
export function usePast(where, { day = false } = {}) {
  const [seconds, setSeconds] = useState(600);
  const ranges = day ? [...RANGES, DAY] : RANGES;
  const [age, step] = ranges.find(([each]) => each === seconds);
  const query = new URLSearchParams();
  for (const kind of ["lengths", "msg_rates", "data_rates", "node_stats"]) {
    query.set(`${kind}_age`, age);
    query.set(`${kind}_incr`, step);
  }
  const past = useAsked(where === null ? null : `${where}?${query}`, Math.max(2, Math.min(step, 10)) * 1000);
  const choice = html`<${Choice} label="Range" value=${seconds} onChange=${setSeconds} options=${ranges.map(([each, , words]) => [each, words])} />`;
  return { past: past.value, error: past.error, step, age, choice };
}

/** Levels over time from `*_details` of the API, oldest first: `[{at, value}]`. */
export function levels(details) {
  return (details?.samples ?? []).map(({ sample, timestamp }) => ({ at: timestamp, value: sample })).reverse();
}

/** Rates over time from samples of a counter; a counter that fell began anew, and leaves a gap. */
export function rates(details) {
  const samples = levels(details);
  return samples.slice(1).map(({ at, value }, index) => {
    const before = samples[index];
    const grown = value - before.value;
    return { at, value: grown < 0 ? null : (grown * 1000) / (at - before.at) };
  });
}

function joined(series, step) {
  const times = [...new Set(series.flatMap(({ points }) => points.map(({ at }) => at)))].sort((one, other) => one - other);
  const filled = [];
  for (const at of times) {
    const before = filled.at(-1);
    if (before !== undefined && at - before > step * 2500) filled.push(before + step * 1000); // a gap in data is a gap in the line
    filled.push(at);
  }
  const columns = series.map(({ points }) => {
    const by = new Map(points.map(({ at, value }) => [at, value]));
    return filled.map((at) => by.get(at) ?? null);
  });
  return [filled.map((at) => at / 1000), ...columns];
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function drawMarks(chart, events) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = colour("--bad");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { at } of events) {
    const x = Math.round(chart.valToPos(at / 1000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(series, words, events, size, range) {
  const dim = colour("--dim");
  const grid = { stroke: colour("--line"), width: 1 };
  const font = "11px system-ui, sans-serif";
  return {
    ...size,
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    padding: [8, 8, 0, 0],
    scales: { x: { range: () => range() }, y: { range: (_, __, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [
      { stroke: dim, font, grid: { show: false }, ticks: { show: false }, size: 24, space: 90, values: (_, ticks) => ticks.map((each) => (range()[1] - range()[0] < 300 ? clock(each * 1000).slice(-8) : minute(each * 1000))) },
      { stroke: dim, font, grid, ticks: { show: false }, size: 58, space: 36, values: (_, ticks) => ticks.map((each) => (words === bytes ? bytes(each) : words === count ? (Number.isInteger(each) ? count(each) : "") : rate(each))) },
    ],
    series: [{}, ...series.map(({ label, at }, index) => ({
      label,
      stroke: colour(LINES[at ?? index]),
      width: 2,
      fill: index === 0 && series.length < 3 ? `${colour(LINES[0])}18` : undefined,
      points: { show: false },
      spanGaps: false,
    }))],
    hooks: { draw: [(chart) => drawMarks(chart, events())] },
  };
}

/**
 * A chart of a few lines.
 *
 * series: `{label, points: [{at, value}]}`, times in ms; kind: "count", "rate" or "bytes"; events: `{at, text}`.
 */
export function Chart({ title, series, kind = "count", step = 10, age = 600, events = [], choice }) {
  const element = useRef(null);
  const kept = useRef({});
  const [at, setAt] = useState(null);
  const words = WORDS[kind];
  const hasPoints = series.some(({ points }) => points.length > 1);
  const labels = series.map(({ label }) => label).join();
  kept.current.events = events;
  kept.current.newest = Math.max(0, ...series.flatMap(({ points }) => points.slice(-1).map((point) => point.at)));
  kept.current.age = age;
  useEffect(() => {
    if (!hasPoints) return undefined;
    const axis = kind === "count" ? count : kind === "bytes" ? bytes : rate;
    const range = () => {
      const end = (kept.current.newest || Date.now()) / 1000;
      return [end - kept.current.age, end];
    };
    let chart = null;
    const room = () => ({ width: element.current.clientWidth, height: element.current.clientHeight });
    const make = () => {
      chart?.destroy();
      chart = new uPlot(options(series, axis, () => kept.current.events, room(), range), joined(series, step), element.current);
      chart.over.addEventListener("pointermove", () => setAt(chart.cursor.idx ?? null));
      chart.over.addEventListener("pointerleave", () => setAt(null));
      kept.current.chart = chart;
    };
    make();
    const size = new ResizeObserver(() => element.current && chart.setSize(room()));
    size.observe(element.current);
    document.addEventListener("themechange", make);
    return () => {
      size.disconnect();
      document.removeEventListener("themechange", make);
      chart.destroy();
      kept.current.chart = null;
    };
  }, [hasPoints, labels, kind]);
  const data = joined(series, step);
  useEffect(() => {
    kept.current.chart?.setData(data);
  }, [series, events]);
  const latest = events.at(-1);
  return html`
    <section class="card chart" aria-label=${title}>
      <div class="row head"><h2 class="grow">${title}</h2>
        <div class="legend">${at !== null && data[0][at] ? html`<span>${clock(data[0][at] * 1000)}</span>` : null}${series.map(({ label, points, at: place }, index) => {
          const value = at === null ? points.at(-1)?.value : data[index + 1][at];
          return html`<span key=${label}><i class=${`line s${(place ?? index) + 1}`}></i>${label} <b>${value === undefined || value === null ? "–" : words(value)}</b></span>`;
        })}</div>
        ${choice}
      </div>
      <div class="plot" ref=${element} role="img" aria-label=${`${title}: ${series.map(({ label, points }) => `${label} ${points.length ? words(points.at(-1).value) : "not known"}`).join(", ")}`}>
        ${hasPoints ? null : html`<p class="empty">The first samples come within some seconds.</p>`}
      </div>
      ${latest ? html`<div class="sub note"><b class="bad">▏</b>${clock(latest.at)} ${latest.text}${events.length > 1 ? `, and ${events.length - 1} earlier in ${lasting(age * 1000)}` : ""}</div>`
        : null}
    </section>`;
}
