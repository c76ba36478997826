"""The subcommands of `warrenmq cluster certificates`."""

from __future__ import annotations

import datetime as dt
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from broker.cli.certificates.folder import CertificateFolder

_STEP_DONE = {
    1: "nodes know the next authority beside the present one",
    2: "nodes have certificates of the next authority, and still know the former one",
    3: "nodes have forgotten the former authority; the rotation is done",
}

_folder_option = click.option(
    "--folder",
    default="certificates",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the certificates are.",
)
_authority_option = click.option(
    "--authority",
    default=None,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the authority's own files are; the same folder without it.",
)
_days_option = click.option(
    "--days", default=365, show_default=True, type=click.IntRange(1, 3650),
    help="How long certificates of nodes are valid.",
)  # fmt: skip


class _Group(click.Group):
    """Turns what a folder can't do into a line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        # What makes certificates costs half of a start: only these commands pay for it.
        error: type[Exception] = import_module("broker.cli.certificates.folder").FolderError
        try:
            return super().invoke(ctx)
        except error as why:
            click.echo(f"warrenmq: {why}", err=True)
            sys.exit(1)


@click.group("certificates", cls=_Group)
def command() -> None:
    """Make and replace the certificates of TLS between nodes."""


@command.command()
@click.argument("nodes", nargs=-1, required=True)
@_folder_option
@_authority_option
@_days_option
def make(nodes: tuple[str, ...], folder: Path, authority: Path | None, days: int) -> None:
    """Make an authority, if there is none, and a certificate for each node that has none.

    NODES are full names, rabbit@host. One that runs out within 30 days is made anew.
    """
    made = _opened(folder, authority).make(nodes, days)
    for node in made:
        click.echo(f"{folder / node}: made")
    for node in dict.fromkeys(nodes):
        if node not in made:
            click.echo(f"{folder / node}: is there")
    click.echo(
        "Each node needs its own folder of these, and nothing else of them; set there\n"
        f"  cluster.tls.folder = {folder.absolute()}\n"
        f"Keep {(authority or folder) / 'authority.pem'} where no node is:"
        " who has it makes certificates."
    )


@command.command()
@click.argument("nodes", nargs=-1)
@_folder_option
@_authority_option
@_days_option
def renew(nodes: tuple[str, ...], folder: Path, authority: Path | None, days: int) -> None:
    """Make new keys and certificates for NODES, or for all.

    Nodes that read the folder take them within 3 seconds; connections stay.
    """
    for node in _opened(folder, authority).renew(nodes, days):
        click.echo(f"{folder / node}: made anew")


@command.command()
@_folder_option
@_authority_option
@_days_option
def rotate(folder: Path, authority: Path | None, days: int) -> None:
    """Go one of three steps on in replacing the authority.

    Every node has to have the files of one step before the next is taken.
    """
    opened = _opened(folder, authority)
    step = opened.rotate(days)
    click.echo(f"Step {step} of {len(_STEP_DONE)}: {_STEP_DONE[step]}.")
    click.echo(
        "Nodes that read this folder take it in within 3 seconds; copy their folders to the others."
    )
    if step < len(_STEP_DONE):
        click.echo("When all nodes have said 'TLS certificates reloaded', run this again.")


@command.command()
@_folder_option
@_authority_option
def show(folder: Path, authority: Path | None) -> None:
    """Say how long each certificate is valid."""
    found = _opened(folder, authority).validity()
    if not found:
        click.echo(f"no certificates in {folder}: warrenmq cluster certificates make NODE...")
        sys.exit(1)
    for each in found:
        click.echo(f"{each.path!s:<48} {each.name:<32} until {each.ends:%Y-%m-%d %H:%M} UTC")


def _opened(folder: Path, authority: Path | None) -> CertificateFolder:
    kind: type[CertificateFolder] = import_module(
        "broker.cli.certificates.folder"
    ).CertificateFolder
    return kind(folder, dt.datetime.now(dt.UTC), authority)
