r"""Topic exchanges: a trie over the words of binding keys, walked without backtracking.

A key is split at dots; the empty key is one empty word. `*` stands for exactly one word, `#` for
any number of words, none included.

                root
               /    \
            stock    #         bindings  stock.*.nyse -> q1
              |      |                   stock.#      -> q2
              *      usd                 #.usd        -> q3
             / \
         nyse   ...

The walk keeps the set of nodes reached after each word, as one simulates a nondeterministic
automaton: a node entered through `#` stays in the set and also offers its children. A set holds a
node once, so the time is bounded by words x nodes; a recursive matcher tries every way to share
the words between several `#`, which is exponential and a known denial of service.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from broker.routing.traits import Traits

D = TypeVar("D", bound=Hashable)

HASH_WORDS_MAX = 2
"""More `#` than this in one binding key are refused; see `key_fault`."""


def key_fault(binding_key: str) -> str | None:
    """Say what is wrong with a binding key, None if nothing is.

    Returns:
        Text for a 406.
    """
    if binding_key.split(".").count("#") > HASH_WORDS_MAX:
        return f"invalid topic binding key '{binding_key}': more than {HASH_WORDS_MAX} '#' words"
    return None


class _Node(Generic[D]):
    """A place in the trie.

    Attributes:
        children: By literal word.
        star: Child for `*`.
        hash: Child for `#`; it loops on itself while matching.
        loops: True for a node entered through `#`.
        destinations: Bindings whose key ends here, counted.
    """

    __slots__ = ("children", "destinations", "hash", "loops", "star")

    def __init__(self, *, loops: bool = False) -> None:
        self.children: dict[str, _Node[D]] = {}
        self.star: _Node[D] | None = None
        self.hash: _Node[D] | None = None
        self.loops = loops
        self.destinations: dict[D, int] = {}

    def child(self, word: str) -> _Node[D] | None:
        """The child for a word of a binding key."""
        if word == "*":
            return self.star
        if word == "#":
            return self.hash
        return self.children.get(word)

    def grow(self, word: str) -> _Node[D]:
        """The child for a word of a binding key, made if missing."""
        found = self.child(word)
        if found is not None:
            return found
        node: _Node[D] = _Node(loops=word == "#")
        if word == "*":
            self.star = node
        elif word == "#":
            self.hash = node
        else:
            self.children[word] = node
        return node

    def prune(self, word: str) -> None:
        """Drop the child for a word."""
        if word == "*":
            self.star = None
        elif word == "#":
            self.hash = None
        else:
            del self.children[word]

    def is_bare(self) -> bool:
        """True if nothing hangs on it."""
        return not (self.destinations or self.children or self.star or self.hash)


class TopicMatcher(Generic[D]):
    """The bindings of one topic exchange."""

    __slots__ = ("_has_hash", "_root", "looked")

    def __init__(self) -> None:
        self._root: _Node[D] = _Node()
        self._has_hash = False
        self.looked = 0

    def bind(
        self, routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Add a binding that is not there yet."""
        node = self._root
        for word in routing_key.split("."):
            node = node.grow(word)
            self._has_hash = self._has_hash or node.loops
        node.destinations[destination] = node.destinations.get(destination, 0) + 1

    def unbind(
        self, routing_key: str, _arguments: Mapping[str, object], destination: D, _label: str
    ) -> None:
        """Remove a binding that is there, and the nodes only it needed."""
        words = routing_key.split(".")
        path = [self._root]
        for word in words:
            node = path[-1].child(word)
            assert node is not None, f"no binding {routing_key!r}"
            path.append(node)
        counts = path[-1].destinations
        counts[destination] -= 1
        if not counts[destination]:
            del counts[destination]
        for depth in range(len(words), 0, -1):
            if not path[depth].is_bare():
                break
            path[depth - 1].prune(words[depth - 1])

    def match(self, traits: Traits) -> Iterable[D]:
        """Destinations of a message, each once."""
        keys = traits.keys
        self.looked = 0
        if len(keys) == 1:
            return self._match_key(keys[0])
        found: dict[D, int] = {}
        for key in keys:
            found.update(self._match_key(key))
        return found

    def _match_key(self, routing_key: str) -> dict[D, int]:
        words = routing_key.split(".")
        reached = self._walk_sets(words) if self._has_hash else self._walk_lists(words)
        if len(reached) == 1:
            return reached[0].destinations
        found: dict[D, int] = {}
        for node in reached:
            if node.destinations:
                found.update(node.destinations)
        return found

    def _walk_lists(self, words: list[str]) -> list[_Node[D]]:
        """Without `#` each node has one way to it, so no set is needed."""
        current = [self._root]
        for word in words:
            following = []
            for node in current:
                literal = node.children.get(word)
                if literal is not None:
                    following.append(literal)
                if node.star is not None:
                    following.append(node.star)
            current = following
            self.looked += len(current)
            if not current:
                break
        return current

    def _walk_sets(self, words: list[str]) -> list[_Node[D]]:
        """Dicts serve as sets that keep their order."""
        current: dict[_Node[D], None] = {}
        _enter(self._root, current)
        for word in words:
            following: dict[_Node[D], None] = {}
            for node in current:
                if node.loops:
                    _enter(node, following)
                literal = node.children.get(word)
                if literal is not None:
                    _enter(literal, following)
                if node.star is not None:
                    _enter(node.star, following)
            current = following
            self.looked += len(current)
            if not current:
                break
        return list(current)


def _enter(node: _Node[D], reached: dict[_Node[D], None]) -> None:
    """Reach a node, and what `#` reaches from it with no word at all."""
    reached[node] = None
    following = node.hash
    while following is not None:
        reached[following] = None
        following = following.hash
