"""Commands of rabbitmq-diagnostics about TLS: certificates, versions, cipher suites."""

from __future__ import annotations

import json
from typing import Any, Final

from broker.cli.ctl.api import EXIT_UNAVAILABLE, EXIT_USAGE, Api, CtlError, UsageError
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.output import Answer

_UNITS: Final = ("days", "weeks", "months", "years")
_FORMATS: Final = ("openssl", "erlang", "map")
_FAILED: Final = 503
_ASKED: Final = 200


def check_expiration_options(call: Invocation) -> None:
    """Refuse a time that is none.

    Raises:
        UsageError: 64.
    """
    unit, within = _time(call)
    if unit not in _UNITS:
        known = ", ".join(_UNITS)
        raise UsageError(f"unit '{unit}' is not supported. Please use one of: {known}")
    if not within.isascii() or not within.isdecimal():
        raise UsageError(f"--within must be a number of {unit}, found {within!r}")


def check_expiration(api: Api, call: Invocation) -> Answer:
    """Fail if a certificate of the node's ports runs out soon.

    Raises:
        CtlError: 69 with the certificates.
    """
    unit, within = _time(call)
    status, body = api.look(f"/api/health/checks/certificate-expiration/{within}/{unit}")
    period = f"{within} {unit[:-1] if within == '1' else unit}"
    if status == _ASKED:
        return Answer(f"No certificates are expiring within {period}.", {})
    if status != _FAILED or not isinstance(body, dict) or "expired" not in body:
        api.judge(status, body)
        raise CtlError(EXIT_UNAVAILABLE, f"{api.url} answered {status}")
    expired = [_padded(each) for each in body["expired"]]
    if call.values.get("formatter") == "json":
        text = json.dumps({"result": "error", "expired": expired})
        raise CtlError(EXIT_UNAVAILABLE, text, is_plain=True)
    lines = [f"Certificates are expiring within {period}:"]
    for each in expired:
        for kind in ("certfile", "cacertfile"):
            said = f"{_place(each)}: {kind} {each[kind]}"
            lines += [f"{said}: {ends}" for ends in each[f"{kind}_expires_on"]]
    raise CtlError(EXIT_UNAVAILABLE, "\n".join(lines))


def certificates(api: Api, _call: Invocation) -> Answer:
    """The certificates that the node's ports present, and those of authorities that they trust."""
    found = [_padded(each) for each in api.get("/api/tls")["certificates"]]
    lines = []
    for each in found:
        lines.append(_place(each))
        lines += [f"{kind}:\n{each[kind] or 'none'}" for kind in ("certfile", "cacertfile")]
    text = "\n".join(lines) or "No port of the node has TLS"
    return Answer(text, {"certificates": found})


def tls_versions(api: Api, _call: Invocation) -> Answer:
    """The versions of TLS that the node can speak."""
    found = api.get("/api/tls")["versions"]
    return Answer("\n".join(found), {"versions": found})


def check_cipher_options(call: Invocation) -> None:
    """Refuse an unknown format.

    Raises:
        CtlError: 64.
    """
    if _format(call) not in _FORMATS:
        raise CtlError(EXIT_USAGE, "Format must be one of: openssl, erlang or map")


def cipher_suites(api: Api, call: Invocation) -> Answer:
    """The cipher suites that are enabled by default; with --all those that the node's OpenSSL has.

    Names are OpenSSL's in all formats: `ssl_options.ciphers.N` takes them.
    """
    tail = "?all=true" if "all" in call.flags else ""
    found: list[dict[str, str]] = api.get(f"/api/tls{tail}")["cipher_suites"]
    names = [each["name"] for each in found]
    if _format(call) == "openssl":
        text = "\n".join(names)
    elif _format(call) == "erlang":
        text = "[" + ",\n ".join(f'"{name}"' for name in names) + "]"
    else:
        maps = [
            f"#{{cipher => {each['cipher']},key_exchange => {each['key_exchange']},"
            f"mac => {each['mac']}}}"
            for each in found
        ]
        text = "[" + ",\n ".join(maps) + "]"
    shown: list[Any] = list(found) if _format(call) == "map" else list(names)
    return Answer(text, {"cipher_suites": shown})


def cipher_banner(call: Invocation) -> str:
    """What stands before the suites."""
    kind = {"openssl": "OpenSSL", "erlang": "Erlang term", "map": "map"}[_format(call)]
    return f"Listing available cipher suites in {kind} format"


def _time(call: Invocation) -> tuple[str, str]:
    return call.values.get("unit", "weeks"), call.values.get("within", "4")


def _format(call: Invocation) -> str:
    return call.values.get("format", "erlang").lower()


def _place(listener: dict[str, Any]) -> str:
    return (
        f"Interface: {listener['interface']}, port: {listener['port']},"
        f" protocol: {listener['protocol']}"
    )


def _padded(listener: dict[str, Any]) -> dict[str, Any]:
    """As the command has it: IPv6 addresses in brackets, hours of two digits."""
    shown = dict(listener)
    if ":" in shown["interface"]:
        shown["interface"] = f"[{shown['interface']}]"
    for key in ("certfile_expires_on", "cacertfile_expires_on"):
        if key in shown:
            shown[key] = [_hours(text) for text in shown[key]]
    return shown


def _hours(text: str) -> str:
    day, _, clock = text.partition(" ")
    return f"{day} {clock.zfill(8)}" if day[:1].isdecimal() else text
