"""rabbitmq-plugins: what RabbitMQ brings as plugins, and what of it is built in here.

Nothing is switched: what is there is always on. Enabling what is not there is refused, so that no
script goes on without what it asked for. The table is the same for every node of this version, so
that `--offline`, as images are built with, needs none.

Source: the commands of rabbitmq_cli's plugins folder; rabbitmq-plugins 3.10.8.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from broker.cli.ctl.api import EXIT_SOFTWARE, EXIT_UNAVAILABLE, Api, CtlError, UsageError
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.output import Answer


class _Plugin(NamedTuple):
    """A plugin of RabbitMQ.

    Attributes:
        is_there: What it does is done here.
        is_wanted: An operator would enable it; others come with those.
        note: Where to read on, or what to use instead.
    """

    is_there: bool
    is_wanted: bool = True
    note: str = ""


_BUILT_IN: Final = _Plugin(is_there=True)
_WITH_OTHERS: Final = _Plugin(is_there=True, is_wanted=False)
_MISSING: Final = _Plugin(is_there=False)
_NO_STREAMS: Final = _Plugin(is_there=False, note="there is no stream protocol yet")

PLUGINS: Final[dict[str, _Plugin]] = {
    "rabbitmq_amqp1_0": _MISSING._replace(note="clients speak AMQP 0-9-1"),
    "rabbitmq_auth_backend_cache": _MISSING,
    "rabbitmq_auth_backend_http": _MISSING,
    "rabbitmq_auth_backend_ldap": _MISSING,
    "rabbitmq_auth_backend_oauth2": _MISSING,
    "rabbitmq_auth_mechanism_ssl": _BUILT_IN._replace(note="auth_mechanisms.N = EXTERNAL"),
    "rabbitmq_consistent_hash_exchange": _BUILT_IN,
    "rabbitmq_delayed_message_exchange": _BUILT_IN,
    "rabbitmq_event_exchange": _BUILT_IN,
    "rabbitmq_federation": _MISSING,
    "rabbitmq_federation_management": _MISSING,
    "rabbitmq_jms_topic_exchange": _MISSING,
    "rabbitmq_management": _BUILT_IN._replace(note="the HTTP API, without the page"),
    "rabbitmq_management_agent": _WITH_OTHERS,
    "rabbitmq_message_deduplication": _BUILT_IN,
    "rabbitmq_mqtt": _MISSING._replace(note="clients speak AMQP 0-9-1"),
    "rabbitmq_peer_discovery_aws": _MISSING,
    "rabbitmq_peer_discovery_common": _WITH_OTHERS,
    "rabbitmq_peer_discovery_consul": _MISSING,
    "rabbitmq_peer_discovery_etcd": _MISSING,
    "rabbitmq_peer_discovery_k8s": _MISSING._replace(
        note="cluster_formation.classic_config.nodes.N names the pods of a StatefulSet"
    ),
    "rabbitmq_prometheus": _BUILT_IN,
    "rabbitmq_random_exchange": _BUILT_IN,
    "rabbitmq_recent_history_exchange": _BUILT_IN,
    "rabbitmq_sharding": _BUILT_IN,
    "rabbitmq_shovel": _MISSING,
    "rabbitmq_shovel_management": _MISSING,
    "rabbitmq_stomp": _MISSING._replace(note="clients speak AMQP 0-9-1"),
    "rabbitmq_stream": _NO_STREAMS,
    "rabbitmq_stream_management": _NO_STREAMS,
    "rabbitmq_top": _MISSING._replace(note="`warrenmq top` shows the busiest queues"),
    "rabbitmq_tracing": _MISSING,
    "rabbitmq_trust_store": _MISSING,
    "rabbitmq_web_dispatch": _WITH_OTHERS,
    "rabbitmq_web_mqtt": _MISSING._replace(note="clients speak AMQP 0-9-1"),
    "rabbitmq_web_stomp": _MISSING._replace(note="clients speak AMQP 0-9-1"),
}
"""By name; tests/unit/cli/test_ctl_plugins.py compares exchange types with those that there are."""

_LEGEND: Final = """\
 Configured: E = explicitly enabled; e = implicitly enabled
 | Status: * = running on {node}
 |/"""


def check_pattern(call: Invocation) -> None:
    """Refuse what is no regular expression."""
    try:
        re.compile(_pattern(call))
    except re.error as error:
        raise UsageError(f"'{_pattern(call)}' is no regular expression: {error}") from error


def _pattern(call: Invocation) -> str:
    return call.arguments[0] if call.arguments else ".*"


def list_banner(call: Invocation) -> str:
    """In rabbitmq-plugins' words."""
    return f'Listing plugins with pattern "{_pattern(call)}" ...'


def show(api: Api, call: Invocation) -> Answer:
    """The plugins, and which of them run, as rabbitmq-plugins draws them.

    -E lists those an operator would enable, -e also those that come with them.
    """
    is_running = "offline" not in call.flags and _answers(api)
    wanted = re.compile(_pattern(call))
    only_explicit, only_there = "enabled" in call.flags, "if_empty" in call.flags
    found = {
        name: plugin
        for name, plugin in PLUGINS.items()
        if wanted.search(name)
        and (plugin.is_there or not (only_explicit or only_there))
        and (plugin.is_wanted or only_there or not only_explicit)
    }
    facts = [_facts(name, plugin, is_running=is_running) for name, plugin in found.items()]
    more = {"status": "running" if is_running else "node_down", "format": "normal"}
    text = _drawn(api, call, found, is_running=is_running)
    return Answer(text, {**more, "plugins": facts})


def _answers(api: Api) -> bool:
    try:
        api.status_of("/healthz")
    except CtlError:
        return False
    return True


def _facts(name: str, plugin: _Plugin, *, is_running: bool) -> dict[str, Any]:
    return {
        "name": name,
        "enabled": _state(plugin),
        "running": plugin.is_there and is_running,
        "note": plugin.note,
    }


def _state(plugin: _Plugin) -> str:
    if not plugin.is_there:
        return "not_enabled"
    return "enabled" if plugin.is_wanted else "implicit"


def _drawn(api: Api, call: Invocation, found: dict[str, _Plugin], *, is_running: bool) -> str:
    if "minimal" in call.flags:
        return "\n".join(found)
    letters = {"enabled": "E", "implicit": "e", "not_enabled": " "}
    width = max(map(len, found), default=0)
    star = "*" if is_running else " "
    lines = [
        f"[{letters[_state(plugin)]}{star if plugin.is_there else ' '}] {name:<{width}} "
        f"{'built in' if plugin.is_there else 'not there'}"
        + (f": {plugin.note}" if plugin.note else "")
        for name, plugin in found.items()
    ]
    if not call.flags & {"quiet", "silent"}:
        lines.insert(0, _LEGEND.format(node=call.values.get("node", api.url)))
    return "\n".join(lines)


def enabled_banner(call: Invocation) -> str:
    """In rabbitmq-plugins' words."""
    names = ", ".join(call.arguments)
    many = len(call.arguments) > 1
    return f"Asking node {{node}} if plugin{'s' if many else ''} {names} {_are(many)} enabled..."


def is_enabled(api: Api, call: Invocation) -> str:
    """Fail if what a plugin does is not there."""
    node = call.values.get("node", api.url)
    missing = [name for name in call.arguments if not _is_there(name)]
    if missing:
        there = ", ".join(name for name, plugin in PLUGINS.items() if plugin.is_there)
        raise CtlError(
            EXIT_UNAVAILABLE,
            f"{_named(missing)} not enabled on node {node}. "
            f"Enabled plugins and dependencies: {there}",
        )
    return f"{_named(list(call.arguments))} enabled on node {node}"


def _is_there(name: str) -> bool:
    plugin = PLUGINS.get(name)
    return plugin is not None and plugin.is_there


def _named(names: list[str]) -> str:
    many = len(names) > 1
    return f"Plugin{'s' if many else ''} {', '.join(names)} {_are(many)}"


def _are(many: bool) -> str:  # noqa: FBT001 - private, one argument
    return "are" if many else "is"


def directories(_api: Api, _: Invocation) -> Answer:
    """There are none: plugins are no files here."""
    keys = {
        "plugins_dir": "Plugin archives directory",
        "plugins_expand_dir": "Plugin expansion directory",
        "enabled_plugins_file": "Enabled plugins file",
    }
    text = "\n".join(f"{title}: (none, plugins are built in)" for title in keys.values())
    return Answer(text, dict.fromkeys(keys, ""))


def enable(_api: Api, call: Invocation) -> str:
    """Fine for what is built in; what is not there is refused, with the reason."""
    if not call.arguments and "all" not in call.flags:
        raise UsageError("not enough arguments.")
    _refuse_missing(call.arguments)
    return _configured("Plugin configuration unchanged: they are built in.")


def disable(_api: Api, call: Invocation) -> str:
    """Say that what is built in stays."""
    if not call.arguments and "all" not in call.flags:
        raise UsageError("not enough arguments.")
    _refuse_unknown(call.arguments)
    stay = [name for name in call.arguments if _is_there(name)]
    if not stay:
        return _configured("Plugin configuration unchanged.")
    text = f"{', '.join(stay)}: built in, and on all the same; a listener is closed by its setting."
    return _configured(text)


def replace(_api: Api, call: Invocation) -> str:
    """Fine for what is built in; the rest of it stays on."""
    _refuse_missing(call.arguments)
    return _configured("Plugin configuration unchanged: what is built in is on.")


def change_banner(verb: str, call: Invocation) -> str:
    """In rabbitmq-plugins' words.

    Args:
        verb: "Enabling" or "Disabling".
        call: The command.
    """
    names = "\n".join(call.arguments) or "ALL"
    return f"{verb} plugins on node {{node}}:\n{names}"


def _configured(outcome: str) -> str:
    there = "\n".join(f"  {name}" for name, plugin in PLUGINS.items() if plugin.is_there)
    return f"The following plugins have been configured:\n{there}\n{outcome}"


def _refuse_unknown(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in PLUGINS]
    if unknown:
        listed = ", ".join(f":{name}" for name in unknown)
        raise CtlError(EXIT_SOFTWARE, f"{{:plugins_not_found, [{listed}]}}")


def _refuse_missing(names: tuple[str, ...]) -> None:
    _refuse_unknown(names)
    missing = [name for name in names if not _is_there(name)]
    if missing:
        texts = [
            f"{name} ({PLUGINS[name].note})" if PLUGINS[name].note else name for name in missing
        ]
        raise CtlError(EXIT_UNAVAILABLE, f"not there yet: {', '.join(texts)}")
