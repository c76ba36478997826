"""`ctl` under the names of RabbitMQ's tools: rabbitmqctl, rabbitmq-diagnostics, ...

The distribution `warrenmq-rabbitmq-names` (deploy/rabbitmq-names) installs them as programs, so
that scripts go on as they are; in a distribution of its own, so that it does not replace those of a
RabbitMQ on the same machine without being asked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from broker.cli.ctl.commands import command


def main() -> None:
    """Run the tool that this program is called."""
    command.main(prog_name=Path(sys.argv[0]).name)
