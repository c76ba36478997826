"""From files, environment and command line to `Settings`: begin with `sources`.

`sources` reads everything that configures a node, in order; `keys` says what each key means, with
`readers` of single values; `safety` has the keys that refuse the start, `rabbitmq` those that
RabbitMQ knows. `effective` shows the settings that act, and where each came from.
"""
