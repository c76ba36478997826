"""Metrics in Prometheus' text format, on a port of their own (15692).

report     what the node knows of itself and the queues it serves   `broker.management.report`
families   names, types and samples, RabbitMQ's and ours            `families`
text       the format                                               `exposition`
port       one text for all scrapers of a second                    `server`
"""
