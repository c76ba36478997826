"""Mirrored queues where rings meet the rest of group 0.

`rings` says what one ring allows and `ring_commands` how a change is asked for. Here policies,
nodes and boots come in: `wanted` says where members should be, `steps` carries changes out.
"""
