"""Reads configuration in Erlang terms: each as the keys of rabbitmq.conf that say the same.

RabbitMQ's advanced.config is read so; a classic rabbitmq.config is refused, and its keys are shown.
What is not a plain term (funs, macros) is an error. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_TOKEN = re.compile(
    r"""\s+|%[^\n]*"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*")|(?P<atom>'(?:[^'\\]|\\.)*'|[a-z][A-Za-z0-9_@]*)"""
    r"""|(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<mark><<|>>|[\[\]{},.|])"""
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_DEPTH_MAX = 32
_PAIR = 2

# Where the key of rabbitmq.conf is not the application and the name of the term.
_KEYS = {
    "rabbit.tcp_listeners": "listeners.tcp",
    "rabbit.ssl_listeners": "listeners.ssl",
    "rabbit.cluster_nodes": "cluster_formation.classic_config.nodes",
    "rabbit.autocluster": "cluster_formation",
    "rabbit.log_levels": "log.default.level",
    "rabbit.classic_queue_default_version": "classic_queue.default_version",
    "rabbit.msg_store_shutdown_timeout": "message_store_shutdown_timeout",
    **{
        f"rabbit.quorum_membership_reconciliation_{name}": (
            f"quorum_queue.continuous_membership_reconciliation.{name}"
        )
        for name in ("enabled", "auto_remove", "interval", "trigger_interval", "target_group_size")
    },
    "rabbitmq_management.tcp_config": "management.tcp",
    "rabbitmq_management.ssl_config": "management.ssl",
    "rabbitmq_management.cors_allow_origins": "management.cors.allow_origins",
    "rabbitmq_management.cors_max_age": "management.cors.max_age",
    "rabbitmq_management.content_security_policy": "management.csp.policy",
    "rabbitmq_management.strict_transport_security": "management.hsts.policy",
    "rabbitmq_management.max_http_body_size": "management.http.max_body_size",
    "rabbitmq_prometheus.tcp_config": "prometheus.tcp",
    "rabbitmq_prometheus.ssl_config": "prometheus.ssl",
    "kernel.inet_dist_use_interface": "distribution.listener.interface",
    "kernel.inet_dist_listen_min": "distribution.listener.port_range.min",
    "kernel.inet_dist_listen_max": "distribution.listener.port_range.max",
}
_RENAMED = {"mem_relative": "relative"}
_PERMISSIONS = ("configure", "write", "read")
_ENCRYPTED = "encrypted"


class NotATerm(ValueError):
    """The text is not a list of plain Erlang terms."""


class Term(NamedTuple):
    """One setting of one application.

    Attributes:
        name: "rabbit, tcp_listeners", for people.
        key: What it is in rabbitmq.conf: a key, or the family that it sets as a whole.
        entries: (key, value) pairs of rabbitmq.conf.
        line: Where it stands, from 1.
        is_encrypted: True if it holds a value that only Erlang can decrypt.
    """

    name: str
    key: str
    entries: list[tuple[str, str]]
    line: int
    is_encrypted: bool


class _Atom(str):
    __slots__ = ("line",)
    line: int


class _Text(str):
    __slots__ = ()


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def looks_like_terms(text: str) -> bool:
    """True if a configuration file holds Erlang terms: its first sign is a bracket.

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
    return [f"{key} = {value}" for term in read_terms(text) for key, value in term.entries]


def read_terms(text: str) -> list[Term]:
    """The settings of `[{application, [{name, value}, ...]}, ...].` in Erlang terms.

    Args:
        text: Content of an advanced.config.

    Raises:
        NotATerm: It is anything else, or holds more than plain terms; the text says where.
    """
    tokens = _tokens(text)
    if not tokens:
        return []
    tree, at = _parse(tokens, 0, 0)
    if [token.text for token in tokens[at:]] != ["."]:
        raise NotATerm(f"line {tokens[min(at, len(tokens) - 1)].line}: expected one list and a dot")
    found = []
    for application, settings in _pairs(tree):
        for name, value in _pairs(settings):
            path = f"{application}.{name}"
            prefix = "" if application == "rabbit" else application.removeprefix("rabbitmq_") + "."
            key = _KEYS.get(path, prefix + name)
            line = name.line if isinstance(name, _Atom) else 1
            entries = _SPECIAL.get(path, _entries)(key, value)
            found.append(Term(f"{application}, {name}", key, entries, line, _is_encrypted(value)))
    return found


def _is_encrypted(value: object) -> bool:
    if isinstance(value, tuple) and len(value) == _PAIR and value[0] == _ENCRYPTED:
        return True
    return isinstance(value, list | tuple) and any(map(_is_encrypted, value))


def _auth_backends(key: str, value: object) -> list[tuple[str, str]]:
    """Each is a module, or {who logs in, who may do what}, either of them perhaps several."""
    found: list[tuple[str, str]] = []
    for number, backend in enumerate(value if isinstance(value, list) else [value], 1):
        if isinstance(backend, tuple) and len(backend) == _PAIR:
            for role, modules in zip(("authn", "authz"), backend, strict=True):
                at = f"{key}.{number}.{role}"
                if isinstance(modules, list):
                    found += [(f"{at}.{n}", str(each)) for n, each in enumerate(modules, 1)]
                else:
                    found.append((at, str(modules)))
        else:
            found.append((f"{key}.{number}", str(backend)))
    return found


def _tags(key: str, value: object) -> list[tuple[str, str]]:
    return [(f"{key}.{tag}", "true") for tag in (value if isinstance(value, list) else [value])]


def _permissions(key: str, value: object) -> list[tuple[str, str]]:
    patterns = value if isinstance(value, list) else [value]
    return [
        (f"{key}.{kind}", str(pattern))
        for kind, pattern in zip(_PERMISSIONS, patterns, strict=False)
    ]


_SPECIAL: dict[str, Callable[[str, object], list[tuple[str, str]]]] = {
    "rabbit.auth_backends": _auth_backends,
    "rabbit.default_user_tags": _tags,
    "rabbit.default_permissions": _permissions,
}


def _entries(key: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, tuple):
        return _tuple_entries(key, value)
    if isinstance(value, list):
        return _list_entries(key, value)
    if key in ("vm_memory_high_watermark", "disk_free_limit"):
        key += ".relative" if isinstance(value, float) else ".absolute"
    return [(key, str(value))]


def _tuple_entries(key: str, value: tuple[object, ...]) -> list[tuple[str, str]]:
    if key == "cluster_formation.classic_config.nodes" and value and isinstance(value[0], list):
        return _entries(key, value[0])  # {[Node, ...], disc}
    if len(value) == _PAIR and isinstance(value[0], _Atom):
        return _entries(f"{key}.{_RENAMED.get(value[0], value[0])}", value[1])
    return [(key, ":".join(str(part) for part in value))]


def _list_entries(key: str, value: list[object]) -> list[tuple[str, str]]:
    if not value:
        return [(key, "none")]
    if key == "loopback_users":
        return [(f"{key}.{item}", "true") for item in value]
    if all(
        isinstance(item, tuple) and len(item) == _PAIR and isinstance(item[0], _Atom)
        for item in value
    ):
        return [entry for item in value for entry in _entries(key, item)]
    if key.startswith("listeners.") and len(value) == 1:
        return _entries(f"{key}.default", value[0])
    return [entry for n, item in enumerate(value, 1) for entry in _entries(f"{key}.{n}", item)]


def _pairs(term: object) -> list[tuple[str, object]]:
    if not isinstance(term, list):
        raise NotATerm("expected a list")
    found: list[tuple[str, object]] = []
    for item in term:
        if not isinstance(item, tuple) or len(item) != _PAIR or not isinstance(item[0], str):
            raise NotATerm("expected {name, value}")
        found.append((item[0], item[1]))
    return found


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotATerm(f"line {line}: unexpected {text[position]!r}")
        if match.lastgroup:
            tokens.append(_Token(match.lastgroup, match[0], line))
        position = match.end()
        line += match[0].count("\n")
    return tokens


def _parse(tokens: list[_Token], at: int, depth: int) -> tuple[object, int]:
    if depth > _DEPTH_MAX or at >= len(tokens):
        raise NotATerm("the terms end too early or nest too deep")
    kind, text, line = tokens[at]
    if kind == "string":
        return _Text(_ESCAPED.sub(r"\1", text[1:-1])), at + 1
    if kind == "atom":
        atom = _Atom(text.strip("'"))
        atom.line = line
        return atom, at + 1
    if kind == "number":
        return (float(text) if re.search(r"[.eE]", text) else int(text)), at + 1
    closers = {"[": "]", "{": "}", "<<": ">>"}
    if text not in closers:
        raise NotATerm(f"line {line}: unexpected {text}")
    items: list[object] = []
    at += 1
    while at < len(tokens) and tokens[at].text != closers[text]:
        item, at = _parse(tokens, at, depth + 1)
        items.append(item)
        if at < len(tokens) and tokens[at].text == ",":
            at += 1
    if at >= len(tokens):
        raise NotATerm(f"line {line}: {text} is not closed")
    if text == "<<":
        return _Text("".join(str(item) for item in items)), at + 1
    return (items if text == "[" else tuple(items)), at + 1
