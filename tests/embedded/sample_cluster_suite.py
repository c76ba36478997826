"""Tests of a cluster as a user of the plugin writes them; test_pytest_plugin.py runs them."""

from __future__ import annotations

import pika

QUORUM = {"x-queue-type": "quorum"}


def test_a_message_outlives_the_node_that_took_it(warrenmq_cluster):
    first, second, _ = warrenmq_cluster.urls
    with pika.BlockingConnection(pika.URLParameters(first)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments=QUORUM)
        channel.basic_publish("", "orders", b"kept", mandatory=True)
    warrenmq_cluster.kill_node(warrenmq_cluster.nodes[0])
    with pika.BlockingConnection(pika.URLParameters(second)) as connection:
        channel = connection.channel()
        for _, _, body in channel.consume("orders", inactivity_timeout=30):
            assert body == b"kept"
            break


def test_the_killed_node_runs_again_for_the_next_test(warrenmq_cluster):
    for url in warrenmq_cluster.urls:
        pika.BlockingConnection(pika.URLParameters(url)).close()
    warrenmq_cluster.pause_node("node3")
