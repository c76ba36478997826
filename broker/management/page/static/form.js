// Forms: fields as values, arguments with their types, and the broker's own text where it refuses.

import { html, useState } from "./vendor/preact.js";

/**
 * A form of fields; `submit(values)` does the work and may throw, its text is shown.
 *
 * fields: `{name, label, type, value, options, hint, required, when(values), suggest}`; type is "text" (the default),
 * "number", "password" (a new one), "secret" (one that exists), "select", "check", "area", "arguments" or "file".
 */
export function Form({ fields, submit, label, cancel, danger = false }) {
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((field) => [field.name, first(field)])));
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const set = (name, value) => setValues((before) => ({ ...before, [name]: value }));
  const send = async (event) => {
    event.preventDefault();
    setError(null);
    setBusy(true);
    try {
      await submit(values);
    } catch (problem) {
      setError(problem.message);
    } finally {
      setBusy(false);
    }
  };
  return html`
    <form onSubmit=${send}>
      <div class="fields">${fields.filter((field) => !field.when || field.when(values)).map((field) => html`
        <${Field} key=${field.name} field=${field} value=${values[field.name]} values=${values} onChange=${(value) => set(field.name, value)} />`)}
      </div>
      ${error ? html`<p class="problem" role="alert">${error}</p>` : null}
      <div class="row end">
        ${cancel ? html`<button type="button" class="btn" onClick=${cancel}>Cancel</button>` : null}
        <button class=${`btn ${danger ? "danger" : "p"}`} disabled=${isBusy}>${isBusy ? "Working…" : label}</button>
      </div>
    </form>`;
}

function first(field) {
  if (field.value !== undefined) return field.value;
  if (field.type === "check") return false;
  if (field.type === "arguments") return rowsOf({});
  if (field.type === "select") return choices(field, {})[0]?.[0] ?? "";
  return "";
}

function choices(field, values) {
  const options = typeof field.options === "function" ? field.options(values) : field.options ?? [];
  return options.map((option) => (Array.isArray(option) ? option : [option, option]));
}

function Field({ field, value, values, onChange }) {
  const hint = typeof field.hint === "function" ? field.hint(values) : field.hint;
  if (field.type === "check") {
    return html`<label class="field check"><input type="checkbox" name=${field.name} checked=${value} onChange=${(event) => onChange(event.currentTarget.checked)} /> ${field.label}${hint ? html` <span class="sub">${hint}</span>` : null}</label>`;
  }
  if (field.type === "arguments") {
    return html`<fieldset class="field"><legend>${field.label}</legend><${Arguments} rows=${value} onChange=${onChange} suggest=${typeof field.suggest === "function" ? field.suggest(values) : field.suggest} name=${field.name} />${hint ? html`<span class="sub">${hint}</span>` : null}</fieldset>`;
  }
  return html`<label class="field"><span>${field.label}</span><${Input} field=${field} value=${value} values=${values} onChange=${onChange} />${hint ? html`<span class="sub">${hint}</span>` : null}</label>`;
}

function Input({ field, value, values, onChange }) {
  const change = (event) => onChange(event.currentTarget.value);
  if (field.type === "select") {
    return html`<select name=${field.name} value=${value} onChange=${change}>${choices(field, values).map(([each, text]) => html`<option value=${each} selected=${each === value}>${text}</option>`)}</select>`;
  }
  if (field.type === "area") return html`<textarea name=${field.name} rows=${field.rows ?? 4} required=${field.required} value=${value} onInput=${change} spellcheck="false"></textarea>`;
  if (field.type === "file") return html`<input type="file" name=${field.name} accept=${field.accept} required=${field.required} onChange=${(event) => onChange(event.currentTarget.files[0] ?? null)} />`;
  if (field.type === "secret") return html`<input type="password" name=${field.name} value=${value} required=${field.required} autocomplete="current-password" onInput=${change} />`;
  return html`<input type=${field.type ?? "text"} name=${field.name} value=${value} required=${field.required} min=${field.min} list=${field.list} placeholder=${field.placeholder} autocomplete=${field.type === "password" ? "new-password" : "off"} onInput=${change} autofocus=${field.autofocus} />`;
}

const TYPES = ["String", "Number", "Boolean", "List", "JSON"];

function Arguments({ rows, onChange, suggest = [], name }) {
  const set = (index, change) => {
    const changed = rows.map((row, at) => (at === index ? { ...row, ...change } : row));
    onChange(changed.at(-1).key ? [...changed, blank()] : changed);
  };
  const add = (key, type) => {
    const found = rows.findIndex((row) => row.key === key);
    if (found < 0) onChange([...rows.filter((row) => row.key), { key, type, value: "" }, blank()]);
  };
  return html`
    ${rows.map((row, index) => html`
      <div class="row pair" key=${index}>
        <input aria-label="Key" name=${`${name}-key-${index}`} value=${row.key} placeholder="key" onInput=${(event) => set(index, { key: event.currentTarget.value })} />
        <input aria-label="Value" name=${`${name}-value-${index}`} value=${row.value} placeholder="value" onInput=${(event) => set(index, { value: event.currentTarget.value })} />
        <select aria-label="Type" name=${`${name}-type-${index}`} value=${row.type} onChange=${(event) => set(index, { type: event.currentTarget.value })}>${TYPES.map((type) => html`<option value=${type} selected=${type === row.type}>${type}</option>`)}</select>
        <button type="button" class="btn quiet" aria-label="Remove" disabled=${!row.key} onClick=${() => onChange(rows.filter((_, at) => at !== index))}>✕</button>
      </div>`)}
    ${suggest.length ? html`<div class="suggest">${suggest.map(([key, type, title]) => html`<button type="button" class="chip" title=${key} onClick=${() => add(key, type)}>${title}</button>`)}</div>` : null}`;
}

const blank = () => ({ key: "", value: "", type: "String" });

/** Rows of the editor from an object. */
export function rowsOf(value) {
  const rows = Object.entries(value ?? {}).map(([key, each]) => {
    if (typeof each === "string") return { key, value: each, type: "String" };
    if (typeof each === "number") return { key, value: String(each), type: "Number" };
    if (typeof each === "boolean") return { key, value: String(each), type: "Boolean" };
    if (Array.isArray(each) && each.every((item) => typeof item === "string" && !item.includes(","))) return { key, value: each.join(", "), type: "List" };
    return { key, value: JSON.stringify(each), type: "JSON" };
  });
  return [...rows, blank()];
}

/** The object that the rows of the editor stand for. Throws Error with what is wrong. */
export function objectOf(rows) {
  const found = {};
  for (const { key, value, type } of rows) {
    if (key) found[key] = parsed(key, value, type);
  }
  return found;
}

function parsed(key, value, type) {
  if (type === "Number") {
    if (!/^-?\d+(\.\d+)?$/.test(value.trim())) throw new Error(`${key}: '${value}' is not a number`);
    return Number(value);
  }
  if (type === "Boolean") {
    if (!["true", "false"].includes(value.trim())) throw new Error(`${key}: '${value}' is neither true nor false`);
    return value.trim() === "true";
  }
  if (type === "List") return value.split(",").map((each) => each.trim()).filter(Boolean);
  if (type === "JSON") {
    try {
      return JSON.parse(value);
    } catch (error) {
      throw new Error(`${key}: not JSON: ${error.message}`);
    }
  }
  return value;
}
