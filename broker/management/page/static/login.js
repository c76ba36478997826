// Logging in: one form, and the broker's own text where it refuses.

import { html } from "./vendor/preact.js";
import { login } from "./api.js";
import { Form } from "./form.js";

const FIELDS = [
  { name: "username", label: "User", required: true, autofocus: true },
  { name: "password", label: "Password", type: "secret", required: true },
];

/** The form alone; `onLogin` is called once the session is there. */
export function LoginForm({ onLogin, cancel }) {
  return html`
    <${Form} fields=${FIELDS} label="Log in" cancel=${cancel} submit=${async ({ username, password }) => {
      await login(username, password);
      await onLogin();
    }} />`;
}

/** The page of somebody who is not logged in; `why` says how that came. */
export function Login({ onLogin, why }) {
  return html`
    <main class="login">
      <div class="card">
        <h1>WarrenMQ</h1>
        ${why ? html`<p class="sub" role="status">${why}</p>` : null}
        <${LoginForm} onLogin=${onLogin} />
      </div>
    </main>`;
}
