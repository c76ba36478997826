"""The cluster: links between nodes, failure detection, membership, and group 0 (consensus).

The problem. Nodes crash, pause, come back without data, and lose each other in one direction or
both. Clients must see one broker all the same: every node routes by what one node declared, and
what has ended (a queue's home, an exclusive owner) must not go on elsewhere.

The idea. One Raft group, group 0, decides everything that is not a message. Around it:

- `links` carries bytes between each pair of nodes and proves who is at the other end;
- `detector` (pure) judges which nodes live, by heartbeats, refused connections and boot ids;
- `identity` stores on disk which node and cluster this is; `formation` (pure) decides which node
  may found a cluster, so that a wiped node can't found a second one;
- `metadata_group` proposes changes from any node and answers when every node that may act on the
  old state has applied the new one; `lease` (pure) says which nodes those are;
- `placement` (pure) chooses nodes for new queues; `membership` adds and removes nodes;
- `timer_alignment` makes periodic work of a node happen at the same time.

The guarantee. When a change is answered, every node that routes, confirms or delivers for clients
has applied it. An ended boot neither holds the lease nor speaks on a link.

The non-guarantee. A node without the lease still has its replicas and its memory: until its lease
runs out (3 s) it may deliver messages that another node delivers, too. It cannot confirm.
"""
