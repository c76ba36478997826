"""The commands on permissions and topic permissions; texts and exit codes are rabbitmqctl's."""

from __future__ import annotations

from typing import Any, Final

from broker.cli.ctl.api import EXIT_NO_USER, EXIT_UNAVAILABLE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.rights.accounts import user_path, vhost_exists

_NOT_FOUND: Final = 404


def _path(kind: str, vhost: str, user: str) -> str:
    return f"/api/{kind}/{segment(vhost)}/{segment(user)}"


def _check_user(api: Api, call: Invocation) -> None:
    if api.status_of(user_path(call)) == _NOT_FOUND:
        raise CtlError(EXIT_NO_USER, f"User {call.arguments[0]} does not exist")


def _check_ends(api: Api, call: Invocation) -> None:
    """Both ends must exist.

    Raises:
        CtlError: 67 no such user, 69 no such vhost.
    """
    _check_user(api, call)
    if not vhost_exists(api, call.vhost):
        raise CtlError(EXIT_UNAVAILABLE, f"Virtual host {call.vhost} does not exist")


def _put(api: Api, path: str, body: dict[str, Any]) -> None:
    """PUT; an expression that can't be compiled is shown as rabbitmqctl begins it."""
    try:
        api.ask("PUT", path, body)
    except CtlError as error:
        name, _, fault = error.text.removeprefix("invalid_regexp: ").partition(": ")
        if error.text.startswith("invalid_regexp: ") and name in body:
            text = f"{{:invalid_regexp, '{body[name]}', '{fault}'}}"
            raise CtlError(EXIT_UNAVAILABLE, text) from error
        raise


def set_permissions(api: Api, call: Invocation) -> str | None:
    """Set what a user may configure, write and read in a vhost, as regular expressions."""
    _check_ends(api, call)
    user, configure, write, read = call.arguments
    body = {"configure": configure, "write": write, "read": read}
    _put(api, _path("permissions", call.vhost, user), body)
    return None


def set_permissions_globally(api: Api, call: Invocation) -> str | None:
    """The same in every vhost there is now."""
    _check_user(api, call)
    user, configure, write, read = call.arguments
    body = {"configure": configure, "write": write, "read": read}
    for vhost in api.get("/api/vhosts?columns=name"):
        _put(api, _path("permissions", vhost["name"], user), body)
    return None


def clear_permissions(api: Api, call: Invocation) -> str | None:
    """Take a user's permissions in a vhost away; no error if there are none."""
    _check_ends(api, call)
    _clear(api, _path("permissions", call.vhost, call.arguments[0]))
    return None


def set_topic_permissions(api: Api, call: Invocation) -> str | None:
    """Set the routing keys with which a user may publish to a topic exchange and bind to it."""
    _check_ends(api, call)
    user, exchange, write, read = call.arguments
    body = {"exchange": exchange, "write": write, "read": read}
    _put(api, _path("topic-permissions", call.vhost, user), body)
    return None


def clear_topic_permissions(api: Api, call: Invocation) -> str | None:
    """Lift them, for one exchange or for all of the vhost."""
    _check_ends(api, call)
    path = _path("topic-permissions", call.vhost, call.arguments[0])
    if len(call.arguments) > 1:
        path += f"/{segment(call.arguments[1] or 'amq.default')}"
    _clear(api, path)
    return None


def _clear(api: Api, path: str) -> None:
    status, answer = api.look(path, "DELETE")
    if status != _NOT_FOUND:
        api.judge(status, answer)


def clear_topic_banner(call: Invocation) -> str:
    """Of clear_topic_permissions, with and without an exchange."""
    of = f' on "{call.arguments[1]}"' if len(call.arguments) > 1 else ""
    user = call.arguments[0]
    return f'Clearing topic permissions{of} for user "{user}" in vhost "{call.vhost}" ...'
