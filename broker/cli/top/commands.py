"""`warrenmq top`: keys come in, frames go out."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.live import Live

from broker.cli.cluster.layout import HOST, Layout
from broker.cli.ctl.api import Api, CtlError
from broker.cli.top import frame
from broker.cli.top.samples import Sample, Sampler
from broker.cli.top.view import View, on_key

_TIMEOUT_S = 5.0
_NO_TERMINAL_LINES = 200
_NO_TERMINAL_COLUMNS = 120
_READ_BYTES = 64


@click.command("top")
@click.option(
    "--url", "urls", multiple=True, help="A node's HTTP API; several are asked one after another."
)
@click.option("--dir", "directory", metavar="DIR", help="The local cluster's directory.")
@click.option("--user", default="guest", envvar="WARRENMQ_USER", show_default=True)
@click.option("--password", default="guest", envvar="WARRENMQ_PASSWORD")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between frames.",
)
@click.option("--sort", default="in/s", show_default=True, help="Sort by this column.")
@click.option("--filter", "pattern", default="", help="A regular expression for queues' names.")
@click.option("--once", is_flag=True, help="Print one frame and end.")
def command(
    urls: tuple[str, ...],
    directory: str | None,
    user: str,
    password: str,
    interval: float,
    sort: str,
    pattern: str,
    *,
    once: bool,
) -> None:
    """Show nodes, the busiest queues, rates and alarms, live."""
    view = _view(sort, pattern)
    found = urls or _urls(directory)
    try:
        sampler = Sampler([Api(url, user, password, _TIMEOUT_S) for url in found])
        if once or not sys.stdout.isatty():
            sys.exit(_print_one(sampler, view))
        with _keys() as keyboard:
            _watch(sampler, view, interval, keyboard)
    except CtlError as error:
        click.echo(f"Error:\n{error.text}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        return


def _view(sort: str, pattern: str) -> View:
    orders = [order.title for order in View().orders]
    if sort not in orders:
        raise click.BadParameter(f"known columns: {', '.join(orders)}", param_hint="--sort")
    return View(order=orders.index(sort), pattern=pattern)


def _urls(directory: str | None) -> list[str]:
    """All nodes of the local cluster; the usual port where there is none."""
    if directory is None and "WARRENMQ_URL" in os.environ:
        return [os.environ["WARRENMQ_URL"]]
    layout = Layout(directory or os.environ.get("WARRENMQ_DIR") or ".warrenmq")
    if not layout.exists:
        return [f"http://{HOST}:15672"]
    return [f"http://{HOST}:{place.management_port}" for place in layout.nodes()]


def _print_one(sampler: Sampler, view: View) -> int:
    """Print a frame; returns the exit code."""
    console = Console()
    is_terminal = console.is_terminal
    width = console.width if is_terminal else _NO_TERMINAL_COLUMNS
    height = console.height if is_terminal else _NO_TERMINAL_LINES
    sample = sampler.sample(view, frame.rows(Sample(), height))
    picture = frame.frame(sample, view, width, height, _now())
    Console(width=width).print(picture)
    return 0 if sample.overview else 1


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _watch(sampler: Sampler, view: View, interval_s: float, keyboard: int) -> None:
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        sample, due_s = Sample(), 0.0
        while not view.is_over:
            if time.monotonic() >= due_s:
                sample = sampler.sample(view, frame.rows(sample, console.height))
                due_s = time.monotonic() + interval_s
            picture = frame.frame(sample, view, console.width, console.height, _now())
            live.update(picture, refresh=True)
            before = view
            for key in _pressed(keyboard, due_s - time.monotonic()):
                view = on_key(view, key)
            if view.path(1) != before.path(1):
                due_s = 0.0  # another list: ask at once


@contextmanager
def _keys() -> Iterator[int]:
    """Take keys one by one, unseen; the terminal is as before at the end."""
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    if not os.isatty(keyboard):
        yield -1
        return
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _pressed(keyboard: int, wait_s: float) -> list[str]:
    """Keys that come within the time; a sequence that begins with escape is one key."""
    if keyboard < 0:
        time.sleep(max(0.0, wait_s))
        return []
    ready, _, _ = select.select([keyboard], [], [], max(0.0, wait_s))
    if not ready:
        return []
    data = os.read(keyboard, _READ_BYTES)
    if not data:
        return ["q"]  # the terminal is gone
    text = data.decode("utf-8", "replace")
    return ["\x1b"] if text.startswith("\x1b") else list(text)
