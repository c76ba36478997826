"""Tests as a user of the plugin writes them; test_pytest_plugin.py runs them (docs/testing.md)."""

from __future__ import annotations

import threading

import aio_pika
import pika
import pika.exceptions
import pytest


def test_each_test_has_a_virtual_host_of_its_own(warrenmq):
    with pika.BlockingConnection(pika.URLParameters(warrenmq.url)) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            channel.queue_declare("orders", passive=True)
        connection.channel().queue_declare("orders", durable=True)


def test_the_queue_of_the_test_before_is_gone(warrenmq):
    with pika.BlockingConnection(pika.URLParameters(warrenmq.url)) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            channel.queue_declare("orders", passive=True)


@pytest.mark.asyncio
async def test_asyncio_clients_work(warrenmq):
    connection = await aio_pika.connect(warrenmq.url)
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue("orders")
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), queue.name)
        assert (await queue.get(no_ack=True)).body == b"hello"


def test_dropped_connections_are_seen(warrenmq):
    connection = pika.BlockingConnection(pika.URLParameters(warrenmq.url))
    assert warrenmq.drop_connections() == 1
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
        connection.process_data_events(10)


def test_a_broker_that_stands_still_is_waited_for(warrenmq):
    with pika.BlockingConnection(pika.URLParameters(warrenmq.url)) as connection:
        channel = connection.channel()
        warrenmq.pause_node()
        threading.Timer(0.3, warrenmq.resume_node).start()
        channel.queue_declare("late")


def test_a_setting_of_the_ini_file_acts(warrenmq):
    with pika.BlockingConnection(pika.URLParameters(warrenmq.url)) as connection:
        connection.channel()
        with pytest.raises(pika.exceptions.NoFreeChannels):
            connection.channel()  # channel_max = 1


def test_the_end_of_a_test_lets_the_broker_go_on(warrenmq):
    warrenmq.pause_node()


def test_so_that_the_next_one_is_served(warrenmq):
    pika.BlockingConnection(pika.URLParameters(warrenmq.url)).close()
