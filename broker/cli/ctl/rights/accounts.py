"""The commands on users and virtual hosts; texts and exit codes are rabbitmqctl's.

Source: rabbitmqctl's *_user*_command.ex and *_vhost*_command.ex, compared with version 3.10.8;
--pre-hashed-password, hash_password and update_vhost_metadata as in 3.13.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable
from getpass import getpass
from typing import Any, Final

from broker.cli.ctl.api import (
    EXIT_DATA,
    EXIT_NO_PERMISSION,
    EXIT_NO_USER,
    EXIT_SOFTWARE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    Api,
    CtlError,
    segment,
)
from broker.cli.ctl.arguments import Invocation

_OK: Final = 200
_AUTHENTICATE_S: Final = 10.0
_METADATA: Final = {
    "description": "description",
    "tags": "tags",
    "default_queue_type": "default_queue_type",
}


def user_path(call: Invocation) -> str:
    """Of the user that the first argument names."""
    return f"/api/users/{segment(call.arguments[0])}"


def no_user(call: Invocation) -> CtlError:
    """Most commands' words for it."""
    return CtlError(EXIT_NO_USER, f'User "{call.arguments[0]}" does not exist')


def no_such_user(name: str) -> CtlError:
    """Some commands' words for it: an Elixir term."""
    return CtlError(EXIT_UNAVAILABLE, f'{{:no_such_user, "{name}"}}')


def secret_of(call: Invocation, prompt: str = "Password: ") -> str:
    """The second argument; without it a line of standard input, asked for at a terminal.

    Raises:
        CtlError: 70, there is none.
    """
    if len(call.arguments) > 1:
        return call.arguments[1]
    line = getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise CtlError(EXIT_SOFTWARE, "Password is not provided via argument or stdin")
    return line


def _credentials(call: Invocation) -> dict[str, Any]:
    """The body's part on the password.

    Raises:
        CtlError: 65, a ready hash is no base64; 70, no password.
    """
    if "pre_hashed" not in call.flags:
        return {"password": secret_of(call)}
    ready = secret_of(call, "Hashed and salted password: ")
    try:
        base64.b64decode(ready, validate=True)
    except (binascii.Error, ValueError):
        text = "Could not Base64 decode provided password hash value"
        raise CtlError(EXIT_DATA, text) from None
    return {"password_hash": ready}


def add_user(api: Api, call: Invocation) -> str | None:
    """Make a user without tags."""
    if api.status_of(user_path(call)) == _OK:
        raise CtlError(EXIT_SOFTWARE, f'User "{call.arguments[0]}" already exists')
    api.ask("PUT", user_path(call), {**_credentials(call), "tags": ""}, refused=EXIT_DATA)
    return (
        "Done. Don't forget to grant the user permissions to some virtual hosts!"
        " See 'warrenmq ctl set_permissions' to learn more."
    )


def change_password(api: Api, call: Invocation) -> str | None:
    """Replace a password; the tags stay."""
    found = api.ask("GET", user_path(call), missing=no_user(call))
    body = {**_credentials(call), "tags": found.get("tags", [])}
    api.ask("PUT", user_path(call), body, refused=EXIT_DATA)
    return None


def clear_password(api: Api, call: Invocation) -> str | None:
    """Remove a user's password, so that no password is valid; the tags stay."""
    found = api.ask("GET", user_path(call), missing=no_such_user(call.arguments[0]))
    api.ask("PUT", user_path(call), {"password_hash": "", "tags": found.get("tags", [])})
    return None


def set_user_tags(api: Api, call: Invocation) -> str | None:
    """Replace a user's tags; the password stays."""
    found = api.ask("GET", user_path(call), missing=no_user(call))
    kept = {key: found[key] for key in ("password_hash", "hashing_algorithm") if key in found}
    api.ask("PUT", user_path(call), {**kept, "tags": list(call.arguments[1:])})
    return None


def delete_user(api: Api, call: Invocation) -> str | None:
    """Remove a user; its connections are closed."""
    api.ask("DELETE", user_path(call), missing=no_user(call))
    return None


def authenticate(api: Api, call: Invocation) -> str | None:
    """Check a name and a password, by logging in with them."""
    name = call.arguments[0]
    other = Api(api.url, name, secret_of(call), _AUTHENTICATE_S)
    try:
        other.get("/api/whoami")
    except CtlError as error:
        if error.exit_code != EXIT_NO_PERMISSION:
            raise
        if error.text != "Not management user":  # else the password was right
            text = f'Error: failed to authenticate user "{name}"\n'
            raise CtlError(EXIT_DATA, f"{text}user '{name}' - invalid credentials") from error
    return "Success"


def hash_password(api: Api, call: Invocation) -> str | None:
    """Return a password as --pre-hashed-password takes it."""
    secret = call.arguments[0] if call.arguments else secret_of(call)
    return str(api.ask("GET", f"/api/auth/hash_password/{segment(secret)}")["ok"])


# Virtual hosts


def no_vhost(name: str) -> CtlError:
    """Return the text for a missing vhost, which rabbitmqctl prints without "Error:"."""
    return CtlError(EXIT_DATA, f"Virtual host '{name}' does not exist", is_plain=True)


def _missing_vhost(call: Invocation) -> CtlError:
    return CtlError(EXIT_DATA, f'Virtual host "{call.arguments[0]}" does not exist')


def vhost_exists(api: Api, name: str) -> bool:
    """Asked of the one node, where `/api/vhosts/NAME` would ask all."""
    return api.status_of(f"/api/vhosts/{segment(name)}/permissions") == _OK


def _vhost(call: Invocation) -> str:
    return f"/api/vhosts/{segment(call.arguments[0])}"


def _put_vhost(api: Api, call: Invocation, body: dict[str, Any]) -> None:
    try:
        api.ask("PUT", _vhost(call), body)
    except CtlError as error:
        if error.text.startswith("unsupported queue type"):
            raise CtlError(EXIT_USAGE, "Unsupported default queue type") from error
        raise


def _described(call: Invocation) -> dict[str, str]:
    return {key: call.values[name] for name, key in _METADATA.items() if name in call.values}


def add_vhost(api: Api, call: Invocation) -> str | None:
    """Add a virtual host, without permissions for any user; an existing one stays as it is."""
    if not vhost_exists(api, call.arguments[0]):
        _put_vhost(api, call, {**_described(call), "grant": False})
    return None


def update_vhost_metadata(api: Api, call: Invocation) -> str | None:
    """Change what describes a virtual host; what is not given stays."""
    _change_vhost(api, call, _described(call))
    return None


def check_metadata(call: Invocation) -> None:
    """There must be something to change.

    Raises:
        CtlError: 64.
    """
    if not _described(call):
        options = "--description, --tags or --default-queue-type"
        raise CtlError(EXIT_USAGE, f"update_vhost_metadata needs {options}")


def set_vhost_tags(api: Api, call: Invocation) -> str | None:
    """Replace a virtual host's tags."""
    _change_vhost(api, call, {"tags": list(call.arguments[1:])})
    return None


def _change_vhost(api: Api, call: Invocation, change: dict[str, Any]) -> None:
    found = api.ask("GET", _vhost(call), missing=_missing_vhost(call))
    kept = {key: found[key] for key in _METADATA.values() if key in found}
    _put_vhost(api, call, {**kept, **change})


def delete_vhost(api: Api, call: Invocation) -> str | None:
    """Remove a virtual host with all in it; its connections are closed."""
    api.ask("DELETE", _vhost(call), missing=no_vhost(call.arguments[0]))
    return None


def trace(*, is_traced: bool) -> Callable[[Api, Invocation], str | None]:
    """Switch the firehose of a virtual host, on all nodes.

    Args:
        is_traced: Begin, not end.
    """
    method, word = ("PUT", "enabled") if is_traced else ("DELETE", "disabled")

    def run(api: Api, call: Invocation) -> str | None:
        path = f"/api/vhosts/{segment(call.vhost)}/tracing"
        body = {"acks": True} if is_traced and "acks" in call.flags else None
        api.ask(method, path, body, missing=no_vhost(call.vhost))
        return f"Trace {word} for vhost {call.vhost}"

    return run


def restart_vhost(api: Api, call: Invocation) -> str | None:
    """A virtual host has no processes here: it runs where its node does."""
    if not vhost_exists(api, call.vhost):
        text = f"Failed to start vhost '{call.vhost}': no_such_vhost"
        raise CtlError(EXIT_SOFTWARE, text)
    return f"Vhost '{call.vhost}' is already running"
