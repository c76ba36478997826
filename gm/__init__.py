"""Guaranteed multicast: what one member broadcasts, all get, or are removed. Knows no queues."""
