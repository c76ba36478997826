"""Reads a classic rabbitmq.config in Erlang terms, only to show its keys in rabbitmq.conf syntax.

WarrenMQ refuses that format. What is not a plain term (funs, macros) is refused without a
translation. Pure.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""\s+|%[^\n]*"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*")|(?P<atom>'(?:[^'\\]|\\.)*'|[a-z][A-Za-z0-9_@]*)"""
    r"""|(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<mark><<|>>|[\[\]{},.|])"""
)
_DEPTH_MAX = 32
_PAIR = 2

# Where the key of rabbitmq.conf is not the name of the term.
_RENAMED = {
    "tcp_listeners": "listeners.tcp",
    "ssl_listeners": "listeners.ssl",
    "default_pass": "default_pass",
    "cluster_nodes": "cluster_formation.classic_config.nodes",
    "log_levels": "log.default.level",
    "listener": "tcp",
    "mem_relative": "relative",
    "classic_queue_default_version": "classic_queue.default_version",
    "msg_store_shutdown_timeout": "message_store_shutdown_timeout",
}


class NotATerm(ValueError):
    """The text is not a list of plain Erlang terms."""


class _Atom(str):
    __slots__ = ()


class _Text(str):
    __slots__ = ()


def looks_like_terms(text: str) -> bool:
    """Whether a configuration file holds Erlang terms: its first sign is a bracket.

    Args:
        text: The file's content.
    """
    stripped = re.sub(r"%[^\n]*", "", text).lstrip()
    return stripped.startswith("[") and not re.match(r"\[[^\]\n]*\]\s*=", stripped)


def as_conf_lines(text: str) -> list[str]:
    """The same settings in rabbitmq.conf syntax, as far as they have one.

    Args:
        text: Content of a rabbitmq.config.

    Raises:
        NotATerm: The text holds more than plain terms.
    """
    term, _ = _parse(_tokens(text), 0, 0)
    lines: list[str] = []
    for application, settings in _pairs(term):
        prefix = "" if application == "rabbit" else application.removeprefix("rabbitmq_") + "."
        for name, value in _pairs(settings):
            lines.extend(_lines(prefix + _RENAMED.get(name, name), value))
    return lines


def _lines(key: str, value: object) -> list[str]:
    if isinstance(value, tuple):
        return _tuple_lines(key, value)
    if isinstance(value, list):
        return _list_lines(key, value)
    if key in ("vm_memory_high_watermark", "disk_free_limit"):
        key += ".relative" if isinstance(value, float) else ".absolute"
    return [f"{key} = {value}"]


def _tuple_lines(key: str, value: tuple[object, ...]) -> list[str]:
    if key == "cluster_formation.classic_config.nodes" and value and isinstance(value[0], list):
        return _lines(key, value[0])  # {[Node, ...], disc}
    if len(value) == _PAIR and isinstance(value[0], _Atom):
        return _lines(f"{key}.{_RENAMED.get(value[0], value[0])}", value[1])
    return [f"{key} = {':'.join(str(part) for part in value)}"]


def _list_lines(key: str, value: list[object]) -> list[str]:
    if not value:
        return [f"{key} = none"]
    if key == "loopback_users":
        return [f"{key}.{item} = true" for item in value]
    if all(
        isinstance(item, tuple) and len(item) == _PAIR and isinstance(item[0], _Atom)
        for item in value
    ):
        return [line for item in value for line in _lines(key, item)]
    if key.startswith("listeners.") and len(value) == 1:
        return _lines(f"{key}.default", value[0])
    return [line for n, item in enumerate(value, 1) for line in _lines(f"{key}.{n}", item)]


def _pairs(term: object) -> list[tuple[str, object]]:
    if not isinstance(term, list):
        raise NotATerm("expected a list")
    found: list[tuple[str, object]] = []
    for item in term:
        if not isinstance(item, tuple) or len(item) != _PAIR:
            raise NotATerm("expected {name, value}")
        found.append((str(item[0]), item[1]))
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotATerm(f"unexpected {text[position]!r}")
        if match.lastgroup:
            tokens.append((match.lastgroup, match[0]))
        position = match.end()
    return tokens


def _parse(tokens: list[tuple[str, str]], at: int, depth: int) -> tuple[object, int]:
    if depth > _DEPTH_MAX or at >= len(tokens):
        raise NotATerm("the terms end too early or nest too deep")
    kind, text = tokens[at]
    if kind == "string":
        return _Text(text[1:-1]), at + 1
    if kind == "atom":
        return _Atom(text.strip("'")), at + 1
    if kind == "number":
        return (float(text) if re.search(r"[.eE]", text) else int(text)), at + 1
    closers = {"[": "]", "{": "}", "<<": ">>"}
    if text not in closers:
        raise NotATerm(f"unexpected {text}")
    items: list[object] = []
    at += 1
    while at < len(tokens) and tokens[at][1] != closers[text]:
        item, at = _parse(tokens, at, depth + 1)
        items.append(item)
        if at < len(tokens) and tokens[at][1] == ",":
            at += 1
    if at >= len(tokens):
        raise NotATerm(f"{text} is not closed")
    if text == "<<":
        return _Text("".join(str(item) for item in items)), at + 1
    return (items if text == "[" else tuple(items)), at + 1
