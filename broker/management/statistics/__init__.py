"""Rates of everything that is counted: what the listings' `message_stats` and `*_details` show.

counters   broker/counters.py, at the places where work is done
sample     every `collect_statistics_interval`, in slices: all counters of the node   `collector`
rates      the difference of two samples by their time                      `rates`
report     what this node says to the one that is asked                     `measured`
JSON       sums over the nodes, under RabbitMQ's names                      `message_stats`
"""
