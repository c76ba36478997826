"""Metrics in Prometheus' text format, on a port of their own (15692).

facts      a node and its objects, as plain numbers with labels    `facts`; `reading` reads them
tables     names, types, and what each shows of a fact             `node_families`,
                                                                   `queue_families`,
                                                                   `client_families`,
                                                                   `memory_families`,
                                                                   `own_families`,
                                                                   `longest_queues`; of `rows`
paths      which tables a path shows: sums, or a sample each       `paths`
text       the format, in pieces                                   `exposition`
port       one text for all who ask the same at the same time      `server`
"""
