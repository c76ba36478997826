"""The broadcasts of one publisher at a member, until they have gone all the way round.

```
   1 ... done | done+1 ... forwarded | forwarded+1 ... last
   forgotten  | sent to the right    | waiting to be durable here
```

Invariants:
    1. done <= forwarded <= last, and none of them falls.
    2. `pubs` holds done+1..last: numbers have no gap, and acks come in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice


class Ledger:
    """The broadcasts of one publisher at one member."""

    __slots__ = ("done", "forwarded", "last", "pubs")

    def __init__(self, done: int = 0) -> None:
        self.done = done
        self.forwarded = done
        self.last = done
        self.pubs: deque[bytes] = deque()

    def extend(self, pubs: Sequence[bytes]) -> None:
        """Append what follows `last`."""
        self.pubs.extend(pubs)
        self.last += len(pubs)

    def settle(self, number: int) -> list[bytes]:
        """Forget everything up to a number that is not beyond `last`; return what was forgotten."""
        pop = self.pubs.popleft
        gone = [pop() for _ in range(number - self.done)]
        self.done = number
        self.forwarded = max(self.forwarded, number)
        return gone

    def sent(self) -> list[bytes]:
        """Messages sent to the right neighbour and not forgotten: done+1..forwarded."""
        return list(islice(self.pubs, self.forwarded - self.done))
