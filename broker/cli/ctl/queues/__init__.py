"""Commands on queues one by one."""
