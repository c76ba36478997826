"""Rates of everything that is counted: what the listings' `message_stats` and `*_details` show.

counters   broker/counters.py, at the places where work is done
sample     every second, in slices: all counters of the node                `collector`
rates      the difference of two samples by their time                      `rates`
flows      rates between a channel, an exchange and a queue                 `flows`
sums       of all queues and clients, added up in a sample       `totals`
past       rings of a minute, an hour, a day                                `history`
query      which part of it a request asks for                              `ages`
report     what this node says to the one that is asked                     `measured`
JSON       sums over the nodes, under RabbitMQ's names                      `message_stats`
"""
