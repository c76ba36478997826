"""Every command of RabbitMQ 3.13's tools: it is there, or one line says why it is not."""

from __future__ import annotations

import pytest

from broker.cli.ctl import commands
from broker.cli.ctl.absent import ABSENT
from broker.cli.ctl.api import EXIT_USAGE
from broker.cli.ctl.help import usage
from broker.cli.ctl.help.tools import COMMANDS


def test_every_command_of_rabbitmq_is_known():
    there = {*usage.names()}
    wanted = [name for names in COMMANDS.values() for name in names]
    assert len(set(wanted)) >= 180
    assert [name for name in wanted if name not in there and name not in ABSENT] == []
    assert {*ABSENT} & there == set()


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_what_there_is_not_says_why_in_one_line(name: str, capsys: pytest.CaptureFixture[str]):
    assert commands.run([name, "argument"], {}) == EXIT_USAGE
    said = capsys.readouterr().err
    assert f"{name} is not supported: {ABSENT[name]}" in said
    assert said.count("\n") == 2
