"""`warrenmq cluster` with `restart`, which asks the nodes as `ctl` does, and `certificates`."""

from __future__ import annotations

import click

from broker.cli.certificates.commands import command as certificates
from broker.cli.cluster.commands import command, directory_option
from broker.cli.cluster.local import Cluster
from broker.cli.restart.rolling import ApiChecks, RollingRestart
from broker.cli.restart.telling import teller

__all__ = ["command"]

command.add_command(certificates)


@command.command()
@click.option("--rolling", is_flag=True, help="Node by node, while the others serve.")
@directory_option
@click.option(
    "--tolerate",
    default="",
    metavar="KIND,...",
    help="Reasons against a stop that do not count: alarm, metadata, quorum, mirror, classic.",
)
@click.option("--timeout", default=300.0, show_default=True, help="Seconds for each wait.")
@click.option("--user", default="guest", envvar="WARRENMQ_USER", help="An administrator.")
@click.option("--password", default="guest", envvar="WARRENMQ_PASSWORD", help="Of the user.")
def restart(
    rolling: bool, directory: str, tolerate: str, timeout: float, user: str, password: str,  # noqa: FBT001
) -> None:  # fmt: skip
    """Restart all nodes; after an interruption the same command goes on where it was."""
    if not rolling:
        raise click.UsageError("--rolling restarts node by node; else use stop, then start")
    cluster = Cluster(directory)
    with teller() as tell:
        checks = ApiChecks(cluster.layout, user, password, tolerate)
        RollingRestart(cluster, checks, tell, timeout_s=timeout).run()
