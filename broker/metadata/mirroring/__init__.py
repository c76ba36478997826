"""Commands and policies that concern the rings of mirrored queues.

`rings` says what one ring allows and `ring_commands` how a change is asked for. Here policies,
nodes and boots come in: `wanted` says where members should be, `steps` carries changes out.
"""
