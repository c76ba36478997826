"""`warrenmq config`: looks at a node's settings without starting it."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module

import click

from broker.config import Settings
from broker.configuration import sources
from broker.configuration.keys import ConfigError

EXIT_CONFIG = 78
"""sysexits.h EX_CONFIG, as `warrenmq server` ends where its settings can't be used."""


@click.group("config")
def command() -> None:
    """Look at settings without starting a node."""


@command.command("check")
@click.argument("file", required=False)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="One setting more.")
def check(file: str | None, overrides: tuple[str, ...]) -> None:
    """Say what is wrong in FILE (rabbitmq.conf), and what has no effect.

    Reads what `warrenmq server --conf FILE` would: the file, advanced.config beside it, the
    environment, --set, and the certificates and definitions that they name.
    """
    try:
        settings, warnings = sources.load(file, os.environ, overrides)
    except ConfigError as error:
        _refuse(error.problems)
    for warning in warnings:
        click.echo(f"no effect: {warning}")
    problems = [problem for problem in _unusable(settings) if problem]
    if problems:
        _refuse(problems)
    click.echo(f"The configuration is fine; without effect: {len(warnings)}.")


def _unusable(settings: Settings) -> list[str]:
    """What stands in the way of a start beside the settings themselves."""
    # Only this command pays for these modules.
    certificates = import_module("broker.server.entrance.certificates")
    definitions = import_module("broker.management.operations.start_definitions")
    exposure = import_module("broker.cluster.authentication.exposure")
    defaults = import_module("broker.metadata.configured.defaults")
    found = [exposure.objection(settings) or "", defaults.fault(settings.vhost_defaults) or ""]
    try:
        certificates.certificates_of(settings)
    except certificates.TlsUnusable as why:
        found.append(str(why))
    try:
        asyncio.run(definitions.check_files(settings))
    except definitions.NodeError as why:
        found.append(str(why))
    return found


def _refuse(problems: tuple[str, ...] | list[str]) -> None:
    for problem in problems:
        click.echo(f"wrong: {problem}", err=True)
    sys.exit(EXIT_CONFIG)
