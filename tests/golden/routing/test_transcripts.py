"""Runs the transcripts of this folder against group 0's machine.

Commands: exchange NAME TYPE [ae=] [auto_delete], queue NAME [owner=], bind|unbind FROM TO
[KEY] [HEADER=VALUE ...] (TO is an exchange if one has the name), delete NAME [if_unused],
publish EXCHANGE [KEY ...] [HEADER=VALUE ...] (keys after the first are CC's), exchanges, bindings.
Values that are digits are integers, true and false are booleans, nothing is void.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.errors import Refusal
from broker.metadata import commands
from tests.golden import datadriven
from tests.unit.metadata.cluster import founded


def _value(text: str) -> object:
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if text.isdigit() else text or None


class Player:
    """Plays the commands of one transcript."""

    def __init__(self) -> None:
        self.asker = founded()
        self.catalogue = self.asker.machine.catalogue

    def __call__(self, case: datadriven.Case) -> str:
        answer = getattr(self, "do_" + case.command)(case.words, case.options)
        if isinstance(answer, Refusal):
            return f"{int(answer.code)} {answer.text}"
        return {True: "done", False: "nothing to do"}.get(answer, answer)

    def do_exchange(self, words: list[str], options: dict[str, str]) -> object:
        arguments = {"alternate-exchange": options["ae"]} if "ae" in options else {}
        auto_delete = "auto_delete" in words
        return self.asker.exchange(words[0], words[1], arguments=arguments, auto_delete=auto_delete)

    def do_queue(self, words: list[str], options: dict[str, str]) -> object:
        result = self.asker.queue(words[0], exclusive_owner=options.get("owner"))
        return result if isinstance(result, Refusal) else result.created

    def do_bind(self, words: list[str], options: dict[str, str]) -> object:
        return self.asker.bind(*self._ends(words), **self._more(words, options))

    def do_unbind(self, words: list[str], options: dict[str, str]) -> object:
        return self.asker.unbind(*self._ends(words), **self._more(words, options))

    def do_delete(self, words: list[str], _options: dict[str, str]) -> object:
        queue = self.catalogue.queue("/", words[0])
        if queue is not None:
            return self.asker.ask(commands.DeleteQueue(queue.uid))
        return self.asker.ask(commands.DeleteExchange("/", words[0], "if_unused" in words))

    def do_publish(self, words: list[str], options: dict[str, str]) -> object:
        headers = {key: _value(value) for key, value in options.items()}
        keys = [*words[1:], ""]
        route = self.catalogue.route("/", words[0], keys[0], headers, keys[1:-1])
        if route is None:
            return "no such exchange"
        return " ".join(sorted(queue.name for queue in route.queues)) or "unroutable"

    def do_exchanges(self, _words: list[str], _options: dict[str, str]) -> object:
        own = [each for each in self.catalogue.exchanges("/") if not each.name.startswith("amq.")]
        return "\n".join(sorted(f"{each.name or '(default)'} {each.type}" for each in own))

    def do_bindings(self, _words: list[str], _options: dict[str, str]) -> object:
        lines = [
            f"{each.source} -> {each.kind} {each.destination} {each.routing_key!r}"
            for each in self.catalogue.bindings("/")
        ]
        return "\n".join(sorted(lines)) or "none"

    def _ends(self, words: list[str]) -> tuple[str, str, str]:
        return (words[0], words[1], words[2] if len(words) > 2 else "")

    def _more(self, words: list[str], options: dict[str, str]) -> dict[str, object]:
        is_exchange = self.catalogue.exchange("/", words[1]) is not None
        arguments = {key: _value(value) for key, value in options.items()}
        return {"kind": "exchange" if is_exchange else "queue", "arguments": arguments}


HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    datadriven.run(path, Player())
