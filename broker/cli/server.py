"""`warrenmq server`: one node in the foreground."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from broker import interpreter
from broker.cli import log_output
from broker.cluster.authentication import exposure
from broker.configuration import sources
from broker.configuration.keys import ConfigError
from broker.metadata.configured import defaults
from broker.server.entrance.certificates import certificates_of
from broker.storage.private import UMASK
from broker.tls.files import TlsUnusable

_EXIT_CONFIG = 78  # sysexits.h EX_CONFIG, as RabbitMQ's CLI


@click.command("server")
@click.option("--conf", metavar="FILE", help="Settings in rabbitmq.conf syntax.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="One setting more.")
@click.option("--check", is_flag=True, help="Read the settings, say what is wrong, and exit.")
def command(conf: str | None, overrides: tuple[str, ...], *, check: bool) -> None:
    """Run one node in the foreground. SIGTERM stops it cleanly."""
    try:
        settings, warnings = sources.load(conf, os.environ, overrides)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"warrenmq: {problem}", err=True)
        sys.exit(_EXIT_CONFIG)
    unsafe = exposure.objection(settings) or defaults.fault(settings.vhost_defaults)
    if unsafe is not None:
        click.echo(f"warrenmq: {unsafe}", err=True)
        sys.exit(_EXIT_CONFIG)
    try:
        certificates_of(settings)
    except TlsUnusable as why:
        click.echo(f"warrenmq: {why}", err=True)
        sys.exit(_EXIT_CONFIG)
    for warning in warnings:
        click.echo(f"warrenmq: warning: {warning}", err=True)
    if check:
        click.echo("The configuration is fine.")
        return
    os.umask(UMASK)
    try:
        log_output.configure(settings.log)
    except OSError as error:
        path = error.filename or settings.log.file
        click.echo(f"warrenmq: {path} can't be written: {error}", err=True)
        sys.exit(_EXIT_CONFIG)
    # The broker itself: half a second that no other command pays. Garbage collections would add a
    # twentieth: each walks the modules that are there already.
    with interpreter.uncollected():
        node = import_module("broker.node")
    sys.exit(node.run(settings))
