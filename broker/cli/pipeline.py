"""`warrenmq pipeline`: starts `python -m pipeline`, which imports nothing of the broker."""

from __future__ import annotations

import os
import sys

import click


@click.command(
    "pipeline",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run a job of the data pipeline with Spark: docs/pipeline.md.

    The process becomes the pipeline's: signals and the exit code are its own.
    """
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pipeline", *arguments])  # noqa: S606  ours
