"""What a node was started with and what its machine's network is like, as `ctl` shows it.

Source: the commands of rabbitmq_cli's diagnostics folder (texts, keys).
"""

from __future__ import annotations

from typing import Any

from broker.cli.ctl.api import EXIT_DATA, Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.output import Answer, term


def process(api: Api) -> dict[str, Any]:
    """The facts of GET /api/node/process."""
    found: dict[str, Any] = api.get("/api/node/process")
    return found


def erlang_version(api: Api, call: Invocation) -> Answer:
    """The runtime: Python, as there is no Erlang."""
    found = process(api)
    text = str(found["runtime_details" if "details" in call.flags else "runtime"])
    return Answer(f"{text} (not Erlang/OTP)", {"value": text})


def command_line_arguments(api: Api, _: Invocation) -> Answer:
    """The command line, secrets hidden."""
    words = process(api)["arguments"]
    return Answer(term(words), {"arguments": words})


def os_env(api: Api, _: Invocation) -> Answer:
    """The variables RABBITMQ_* and WARRENMQ_*, secrets hidden."""
    found = process(api)["variables"]
    text = "\n".join(f"{name}={value}" for name, value in found.items())
    return Answer(text, {"variables": found})


def discover_peers(api: Api, _: Invocation) -> Answer:
    """The nodes of `cluster_formation.classic_config.nodes.N`."""
    peers = process(api)["peers"]
    text = "\n".join(["Discovered peers nodes:", *peers]) if peers else "No peers discovered"
    return Answer(text, {"peers": peers})


def list_network_interfaces(api: Api, _: Invocation) -> Answer:
    """The interfaces with their addresses, one paragraph each."""
    found = process(api)["interfaces"]
    texts = []
    for name, facts in found.items():
        lines = [f"Interface {name}", "", f"hwaddr: {facts['hwaddr']}"]
        lines += [f"{key}: {value}" for each in facts["addresses"] for key, value in each.items()]
        texts.append("\n".join([*lines, f"flags: {facts['flags']}", ""]))
    return Answer("\n".join(texts), {"interfaces": found})


def resolver_info(api: Api, _: Invocation) -> Answer:
    """How the machine resolves names."""
    found = process(api)["resolver"]
    lines = [
        "Runtime Hostname Resolver Settings",
        "",
        f"Lookup order: {found['lookup']}",
        f"Hosts file: {found['hosts_file']}",
        f"Resolver conf file: {found['resolv_conf']}",
        f"Name servers: {', '.join(found['nameservers']) or '(none)'}",
    ]
    return Answer("\n".join(lines), {"resolver": found})


def check_family(call: Invocation) -> None:
    """Refuse what is no family of addresses."""
    if call.values.get("address_family", "ipv4").lower() not in ("ipv4", "ipv6"):
        raise UsageError("unsupported IP address family; valid values are: ipv4, ipv6")


def resolve_banner(call: Invocation) -> str:
    """In rabbitmq-diagnostics' words."""
    family = call.values.get("address_family", "IPv4")
    return f"Asking node {{node}} to resolve hostname {call.arguments[0]} to {family} addresses..."


def resolve_hostname(api: Api, call: Invocation) -> Answer:
    """The addresses of a host, resolved at the node."""
    host = call.arguments[0]
    family = call.values.get("address_family", "ipv4").lower()
    missing = CtlError(EXIT_DATA, "Hostname does not resolve (resolution failed with an nxdomain)")
    path = f"/api/node/resolve/{segment(host)}?address_family={family}"
    found = api.ask("GET", path, missing=missing)["addresses"]
    return Answer("\n".join(found), {"hostname": host, "addresses": found})
