"""Login mechanisms that a connection machine offers, and connection.update-secret."""

from __future__ import annotations

from broker.amqp import spec
from broker.amqp.connection import ConnectionMachine, MachineSettings, State, UpdateSecret
from broker.amqp.frames import PROTOCOL_HEADER
from broker.errors import AmqpError, ReplyCode
from tests.unit.amqp.test_connection import client_in


def test_update_secret_is_answered() -> None:
    client = client_in(State.RUNNING)
    assert client.send(spec.ConnectionUpdateSecret(b"new", "expired")) == []
    assert client.machine.events == [UpdateSecret(b"new", "expired")]
    assert client.heard() == []
    client.machine.secret_updated()
    assert client.heard() == [spec.ConnectionUpdateSecretOk()]


def test_no_answer_to_update_secret_once_the_connection_is_closing() -> None:
    client = client_in(State.RUNNING)
    client.send(spec.ConnectionUpdateSecret(b"new", "expired"))
    client.machine.close(AmqpError(ReplyCode.NOT_ALLOWED, "no"))
    client.heard()
    client.machine.secret_updated()
    assert client.heard() == []


def test_only_the_mechanisms_of_the_settings_are_offered() -> None:
    """Rows: 1.1 SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO"""
    machine = ConnectionMachine(MachineSettings(mechanisms=("AMQPLAIN",)), {}, 0)
    machine.receive(PROTOCOL_HEADER, 0)
    assert b"\x00\x00\x00\x08AMQPLAIN" in machine.take_output()
