// Changes of an answer, as the event stream tells them (docs/management-api.md, "Live data").
// What did not change stays the same object, so a row that is drawn need not be drawn again.

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** The result of a JSON merge patch (RFC 7386); `target` stays as it is. */
export function merge(target, patch) {
  if (!isObject(patch)) return patch;
  const made = isObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete made[key];
    else Object.defineProperty(made, key, { value: merge(made[key], value), enumerable: true, configurable: true, writable: true });
  }
  return made;
}

function changedRows(old, { rows, in_rows: patches }) {
  let made = old;
  if (rows) made = rows.flatMap((each) => (Array.isArray(each) ? old.slice(each[0], each[0] + each[1]) : [each]));
  if (patches) {
    made = [...made];
    for (const [place, patch] of Object.entries(patches)) made[place] = merge(made[place], patch);
  }
  return made;
}

/** The value after a change `{patch, rows, in_rows}`. */
export function apply(value, change) {
  if (Array.isArray(value)) return changedRows(value, change);
  const made = change.patch ? merge(value, change.patch) : { ...value };
  if (change.rows || change.in_rows) made.items = changedRows(value.items, change);
  return made;
}
