// Numbers, times and sizes as people read them. Pure; the words are those of GET .../why.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const UNITS = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]];
const SIZES = ["bytes", "kB", "MB", "GB", "TB"];

export const NOTHING = "–";

/** A whole number with separators; a dash where there is none. */
export function count(number) {
  return Number.isFinite(number) ? WHOLE.format(number) : NOTHING;
}

/** "1 message", "48,210 messages". */
export function counted(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}

/** A rate without its unit, which stands beside it: one decimal below 10. */
export function rate(perSecond) {
  if (!Number.isFinite(perSecond)) return NOTHING;
  return perSecond >= 9.95 || perSecond < 0.05 ? WHOLE.format(perSecond) : TENTHS.format(perSecond);
}

/** Bytes as [number, unit], in the unit that leaves one to three digits. */
export function sized(bytes) {
  if (!Number.isFinite(bytes)) return [NOTHING, ""];
  let size = bytes;
  let unit = 0;
  while (size >= 999.5 && unit < SIZES.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return [unit === 0 || size >= 9.95 ? WHOLE.format(size) : TENTHS.format(size), SIZES[unit]];
}

/** "47 MB". */
export function bytes(number) {
  return sized(number).join(" ").trim();
}

/** A duration in its two largest units: "3 min 12 s"; below a second in milliseconds. */
export function lasting(ms) {
  if (!Number.isFinite(ms)) return NOTHING;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const parts = [];
  let rest = ms;
  for (const [size, unit] of UNITS) {
    if (rest < size && !parts.length) continue;
    const number = Math.floor(rest / size);
    rest -= number * size;
    parts.push(number ? `${number} ${unit}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

/** The time of day: "14:31:07"; with the date where it is not today. */
export function clock(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return NOTHING;
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

/** "14:31", for an axis. */
export function minute(ms) {
  return new Date(ms).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** A node's name without what all of them share: "node1" of "rabbit@node1". */
export function node(name) {
  return typeof name === "string" ? name.replace(/^rabbit@/, "") : NOTHING;
}

/** A value of JSON on one line: text as it is, the rest as JSON. */
export function plain(value) {
  if (value === undefined || value === null) return NOTHING;
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The rate of a counter of an object of the API: `stat(queue.message_stats, "publish")`. */
export function perSecond(stats, ...keys) {
  if (!stats) return undefined;
  let sum;
  for (const key of keys) {
    const found = stats[`${key}_details`]?.rate;
    if (Number.isFinite(found)) sum = (sum ?? 0) + found;
  }
  return sum;
}
