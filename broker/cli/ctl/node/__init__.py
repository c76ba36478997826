"""Commands on one node's process and machine, and on what RabbitMQ brings as plugins."""
