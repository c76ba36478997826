"""The `warrenmq` command. Subcommands are imported when called, so that none pays for another.

A command that needs no server starts in under 0.3 s (tests/unit/cli/test_start_time.py): nothing
here or in `ctl` and `cluster` may import asyncio, h2, aiohttp or the broker.
"""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {
    "server": ("broker.cli.server", "Run one node in the foreground."),
    "config": ("broker.cli.config", "Check settings without starting a node."),
    "cluster": (
        "broker.cli.restart.commands",
        "Local clusters, and the certificates of nodes.",
    ),
    "ctl": ("broker.cli.ctl.commands", "rabbitmqctl's commands over HTTP."),
    "top": ("broker.cli.top.commands", "Show the cluster in the terminal, live."),
    "perf": ("broker.cli.perf.commands", "Generate load, with perf-test's options."),
    "pipeline": ("broker.cli.pipeline", "Jobs of the data pipeline, with Spark."),
}


class _LazyGroup(click.Group):
    """A group whose commands live in modules of their own, as `command` there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value and not ctx.resilient_parsing:
        click.echo(f"warrenmq {import_module('warrenmq').__version__}")
        ctx.exit()


@click.command(cls=_LazyGroup)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
def main() -> None:
    """WarrenMQ, a clustered AMQP 0-9-1 broker."""


if __name__ == "__main__":
    main()
