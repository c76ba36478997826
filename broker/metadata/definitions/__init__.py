"""Definitions: vhosts, users, policies, queues, bindings as one JSON document, as RabbitMQ's.

    document -> reading.read -> Definitions -> planning.plan -> Plan: commands by stage
                     |                              |
                     faults: types, values          faults: missing ends, limits

    catalogue -> export.select -> Selection -> export.whole, export.of_vhost -> document

Pure. Who proposes the commands of a plan: `broker.management.importing`.

Invariant: a document with one fault yields no command; and what a plan finds as the document has it
yields none either, so that a second import changes nothing.

Source: rabbit_definitions.erl, rabbit_mgmt_wm_definitions.erl of RabbitMQ 3.13; files and answers
compared with a RabbitMQ 3.10.8 node.
"""
