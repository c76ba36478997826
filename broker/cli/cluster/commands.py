"""The subcommands of `warrenmq cluster`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from broker.cli.cluster.layout import HOST, LayoutError, NodePlace
from broker.cli.cluster.local import Cluster, ClusterError, watch

directory_option = click.option(
    "--dir", "directory", default=".warrenmq", envvar="WARRENMQ_DIR", show_default=True,
    help="Where the cluster keeps everything.",
)  # fmt: skip
_node = click.argument("node")


class _Group(click.Group):
    """Turns what a cluster can't do into a line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ClusterError, LayoutError) as error:
            click.echo(f"warrenmq: {error}", err=True)
            sys.exit(1)


@click.group("cluster", cls=_Group)
def command() -> None:
    """Start a cluster of local processes, look at it, and break it."""


@command.command()
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 20))
@directory_option
@click.option("--amqp-port", default=5672, show_default=True, help="AMQP port of node1.")
@click.option("--management-port", default=15672, show_default=True, help="HTTP port of node1.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="For every node.")
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="FROM:TO=HOST:PORT",
    help="Where a node dials another.",
)
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C, then stop the cluster.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds until all must serve.")
def start(
    nodes: int, directory: str, amqp_port: int, management_port: int,
    settings: tuple[str, ...], links: tuple[str, ...], foreground: bool, timeout: float,  # noqa: FBT001
) -> None:  # fmt: skip
    """Start nodes as background processes and return when all serve."""
    cluster = Cluster(directory)
    places = cluster.start(
        nodes,
        amqp_port=amqp_port,
        management_port=management_port,
        settings=settings,
        links=dict(_link(text) for text in links),
        timeout_s=timeout,
    )
    _print_endpoints(cluster, places)
    if foreground:
        stopped: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda n, _: stopped.append(n))
        click.echo("Ctrl-C stops the cluster.")
        watch(cluster, lambda: bool(stopped))
        _stop(cluster, ())


@command.command()
@directory_option
@click.option("--formatter", type=click.Choice(["table", "json"]), default="table")
def status(directory: str, formatter: str) -> None:
    """Say which nodes run."""
    rows = Cluster(directory).status()
    if formatter == "json":
        shown = [
            {
                "name": row.place.full_name,
                "state": row.state,
                "pid": row.pid,
                "ready": row.is_ready,
                "amqp_port": row.place.amqp_port,
                "management_port": row.place.management_port,
                "cluster_port": row.place.cluster_port,
            }
            for row in rows
        ]
        click.echo(json.dumps(shown))
        return
    for row in rows:
        state = "ready" if row.is_ready else "not ready" if row.state == "running" else row.state
        click.echo(
            f"{row.place.full_name:<16} {state:<10} pid {row.pid or '-':<8}"
            f" amqp {HOST}:{row.place.amqp_port}"
            f"  management http://{HOST}:{row.place.management_port}"
        )


@command.command()
@click.argument("nodes", nargs=-1)
@directory_option
def stop(nodes: tuple[str, ...], directory: str) -> None:
    """Stop all nodes, or the named ones, with SIGTERM."""
    _stop(Cluster(directory), nodes)


@command.command("start-node")
@_node
@directory_option
def start_node(node: str, directory: str) -> None:
    """Start one stopped node and wait until it serves."""
    place = Cluster(directory).start_node(node)
    click.echo(f"{place.full_name} serves")


def _one(name: str, act: Callable[[Cluster, str], None], done: str, text: str) -> None:
    @command.command(name, help=text)
    @_node
    @directory_option
    def run(node: str, directory: str) -> None:
        cluster = Cluster(directory)
        act(cluster, node)
        click.echo(f"{cluster.layout.node(node).full_name} {done}")


_one("kill", Cluster.kill, "killed", "SIGKILL one node.")
_one("pause", Cluster.pause, "paused", "SIGSTOP one node.")
_one("resume", Cluster.resume, "resumed", "SIGCONT one node.")


def _stop(cluster: Cluster, names: tuple[str, ...]) -> None:
    late = cluster.stop(names)
    if late:
        click.echo(f"killed, not stopped in time: {', '.join(late)}", err=True)
        sys.exit(1)
    click.echo("stopped")


def _print_endpoints(cluster: Cluster, places: list[NodePlace]) -> None:
    click.echo(f"{len(places)} node{'s' if len(places) > 1 else ''} serving, guest/guest")
    for place in places:
        click.echo(
            f"  {place.full_name:<16} amqp://{HOST}:{place.amqp_port}"
            f"   http://{HOST}:{place.management_port}"
        )
    click.echo(f"  everything in {cluster.layout.directory}; warrenmq ctl cluster_status")


def _link(text: str) -> tuple[tuple[str, str], str]:
    ends, equals, address = text.partition("=")
    source, colon, target = ends.partition(":")
    if not equals or not colon:
        raise click.BadParameter(f"expected FROM:TO=HOST:PORT, found {text!r}")
    return (source, target), address
