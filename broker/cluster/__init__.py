"""Many nodes as one broker: links, who is alive, who is a member, and group 0 that all agree on.

The problem. Nodes crash, pause, come back empty, and lose sight of each other, in one direction or
both. Clients must see one broker all the same: what one node declared, every node routes by, and
what a node was told is over (a queue's home, an exclusive owner) must not go on elsewhere.

The idea. One Raft group, group 0, decides everything that is not a message. Around it:

- `links` carries bytes between each pair of nodes and proves who is at the other end;
- `detector` (pure) judges from heartbeats, refused connections and changed boot ids who lives;
- `identity` remembers on disk which node and cluster this is, `formation` (pure) decides who may
  found a cluster, so that a wiped node can't found a second one;
- `metadata_group` proposes changes from any node and answers when every node that may act on the
  old state has applied the new one; `lease` (pure) says which nodes those are;
- `placement` (pure) says where new queues go; `membership` brings nodes in and out;
- `timer_alignment` has all periodic work fall together.

The guarantee. When a change is answered, every node that routes, confirms or delivers for clients
has applied it. An ended boot neither holds the lease nor speaks on a link.

The non-guarantee. A node without the lease still has its replicas and its memory: until its lease
runs out (3 s) it may deliver what is delivered elsewhere too. It cannot confirm.
"""

import os

# Before gRPC is imported, which reads this once: sockets are then read in the thread that waits for
# their messages, not by way of two others. A fifth less time from node to node (decision 0031).
# What the environment says goes first; a version of gRPC without this choice ignores it.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
