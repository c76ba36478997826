"""etcd's quorum and membership tables, run on our arithmetic.

The files lie beside the checkout; without them these tests skip. `confchange` is used as far as
changes are made one voter at a time (`simple`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raft.core import membership, quorum
from raft.core.membership import ConfigChange, InvalidChange
from raft.core.messages import Configuration

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures" / "etcd-raft"
pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="etcd's fixtures are not here")

RESULTS = {
    quorum.VoteResult.WON: "VoteWon",
    quorum.VoteResult.LOST: "VoteLost",
    quorum.VoteResult.PENDING: "VotePending",
}
KINDS = {"v": "voter", "l": "learner", "r": "remove", "u": "update"}


class Directive(NamedTuple):
    line: int
    command: str
    arguments: dict[str, list[str]]
    body: str
    expected: list[str]


def directives(path: Path) -> Iterator[Directive]:
    """Blocks `command arguments`, body, `----`, output, up to a blank line."""
    lines = path.read_text().splitlines()
    position = 0
    while position < len(lines):
        start = position
        head = lines[position].strip()
        position += 1
        if not head or head.startswith("#"):
            continue
        body = []
        while lines[position].strip() != "----":
            body.append(lines[position])
            position += 1
        position += 1
        expected = []
        while position < len(lines) and lines[position].strip():
            expected.append(lines[position].strip())
            position += 1
        command, _, rest = head.partition(" ")
        found = re.findall(r"(\w+)=(?:\(([^)]*)\)|(\S+))", rest)
        arguments = {
            name: ["zero"] if word else [item.strip() for item in inner.split(",") if item.strip()]
            for name, inner, word in found
        }
        yield Directive(start + 1, command, arguments, " ".join(body), expected)


def cases(folder: str) -> list[object]:
    if not FIXTURES.is_dir():
        return []
    return [pytest.param(p, id=p.stem) for p in sorted((FIXTURES / folder).glob("*.txt"))]


def voters_of(directive: Directive) -> tuple[list[str], list[str], list[str]]:
    """Both sets of voters, and all of them once, in numerical order as etcd fills its columns."""
    incoming = directive.arguments.get("cfg", [])
    outgoing = directive.arguments.get("cfgj", [])
    outgoing = [] if outgoing == ["zero"] else outgoing
    both = list(dict.fromkeys(incoming + outgoing))
    return incoming, outgoing, sorted(both, key=int)


@pytest.mark.parametrize("path", cases("quorum"))
def test_quorum(path: Path) -> None:
    count = 0
    for directive in directives(path):
        incoming, outgoing, both = voters_of(directive)
        if directive.command == "committed":
            column = directive.arguments.get("idx", [])
            acked = {v: int(i) for v, i in zip(both, column, strict=True) if i != "_"}
            index = quorum.joint_committed_index(incoming, outgoing, acked)
            found = "∞" if index == quorum.INDEX_MAX else str(index)
        else:
            column = directive.arguments.get("votes", [])
            votes = {v: x == "y" for v, x in zip(both, column, strict=True) if x != "_"}
            found = RESULTS[quorum.joint_vote_result(incoming, outgoing, votes)]
        expected = directive.expected[-1].removeprefix("<empty majority quorum>")
        assert found == expected, f"{path.name}:{directive.line}"
        count += 1
    assert count


def described(configuration: Configuration) -> str:
    text = f"voters=({' '.join(configuration.voters)})"
    if configuration.learners:
        text += f" learners=({' '.join(configuration.learners)})"
    return text


def parsed(text: str) -> Configuration | None:
    """The configuration etcd prints; None if it is a joint one."""
    found = re.match(r"voters=\(([^)]*)\)(&&)?[^ ]*(?: learners=\(([^)]*)\))?", text)
    assert found is not None, text
    voters, joint, learners = found.groups(default="")
    if joint:
        return None
    return Configuration(tuple(voters.split()), tuple(learners.split()))


@pytest.mark.parametrize("path", cases("confchange"))
def test_simple_membership_changes(path: Path) -> None:
    """Joint steps are not ours: after one, etcd's own result is taken over."""
    configuration: Configuration | None = Configuration()
    for directive in directives(path):
        where = f"{path.name}:{directive.line}"
        expected = directive.expected[0]
        if directive.command != "simple":
            if expected.startswith("voters="):
                configuration = parsed(expected)
            continue
        if configuration is None:
            assert expected == "can't apply simple config change in joint config", where
            continue
        changes = [
            ConfigChange(KINDS[word[0]], "" if word[1:] == "0" else word[1:])
            for word in directive.body.split()
        ]
        result = membership.simple(configuration, changes)
        if isinstance(result, InvalidChange):
            assert result.text == expected, where
        else:
            configuration = result
            assert described(result) == expected, where
