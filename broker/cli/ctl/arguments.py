"""Takes rabbitmqctl's arguments apart: options may stand anywhere, before or after the command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.cli.ctl.api import EXIT_USAGE, CtlError

# Every spelling of an option that takes a value -> its name here.
_VALUED = {
    "-n": "node",
    "--node": "node",
    "-p": "vhost",
    "--vhost": "vhost",
    "-t": "timeout",
    "--timeout": "timeout",
    "--formatter": "formatter",
    "-u": "login",
    "--user": "user",
    "--password": "password",
    "--url": "url",
    "--dir": "dir",
    "--data-dir": "data_dir",
    "--conf": "conf",
    "--priority": "priority",
    "--apply-to": "apply_to",
    "--address": "address",
    "--description": "description",
    "--tags": "tags",
    "--default-queue-type": "default_queue_type",
    "--limit": "limit",
    "--per-connection-delay": "per_connection_delay",
    "--membership": "membership",
    "--unit": "unit",
    "--printer": "printer",
    "--format": "format",
    "--vhost-pattern": "vhost_pattern",
    "--queue-pattern": "queue_pattern",
    "--tolerate": "tolerate",
    "--within": "within",
    "--address-family": "address_family",
    "--number": "number",
    "-N": "number",
    "--duration": "duration",
    "-d": "duration",
    "--pattern": "pattern",
    "--sample-interval": "sample_interval",
    "--queue-timeout": "queue_timeout",
    "--partitions": "partitions",
    "--binding-keys": "binding_keys",
    "--routing-keys": "binding_keys",
    "--max-length-bytes": "max_length_bytes",
    "--max-age": "max_age",
    "--stream-max-segment-size-bytes": "stream_max_segment_size_bytes",
    "--leader-locator": "leader_locator",
    "--initial-cluster-size": "initial_cluster_size",
    "--key": "key",
    "--preferred-leader-node": "preferred_leader_node",
    "--stream": "stream",
    "--reference": "reference",
    "--from": "from",
    "--key-pattern": "key_pattern",
    "--header": "header",
    "--body": "body",
    "--json": "json_path",
    "--reason": "reason",
    "--died-in": "died_in",
    "--exception": "exception",
    "--max-redrives": "max_redrives",
    "--rate": "rate",
    "--to": "to",
    "--to-queue": "to_queue",
    "--to-exchange": "to_exchange",
}
_FLAGS = {
    "-q": "quiet",
    "--quiet": "quiet",
    "-s": "silent",
    "--silent": "silent",
    "--no-table-headers": "no_headers",
    "-l": "ignored",
    "--longnames": "ignored",
    "--dry-run": "dry_run",
    "--force": "force",
    "--if-empty": "if_empty",
    "--if-unused": "if_unused",
    "-e": "if_empty",
    "--online": "online",
    "--offline": "offline",
    "--local": "local",
    "--all": "all",
    "--acks": "acks",
    "--global": "global",
    "--disc": "ignored",
    "--ram": "ignored",
    "--pre-hashed-password": "pre_hashed",
    "--delete-source": "delete_source",
    "--skip-if-unchanged": "skip_if_unchanged",
    "--idempotent": "idempotent",
    "--wait": "wait",
    "--no-wait": "no_wait",
    "--details": "details",
    "--by-source": "by_source",
    "--errors-only": "errors_only",
    "--used": "used",
    "--tracking": "tracking",
    "--offset": "offset",
    "--writer": "writer",
    "-m": "minimal",
    "--minimal": "minimal",
    "-E": "enabled",
    "--enabled": "enabled",
    "--implicitly-enabled": "if_empty",  # its letter is -e, which delete_queue has for --if-empty
    "-v": "ignored",
    "--verbose": "ignored",
    "--help": "help",
    "-?": "help",
    "-h": "help",
}


class Invocation(NamedTuple):
    """One call of `warrenmq ctl`, taken apart.

    Attributes:
        command: "list_queues"; "" where none was given.
        arguments: What stands after it, without options.
        values: Options with a value, by their names above.
        flags: Options without one.
    """

    command: str
    arguments: tuple[str, ...]
    values: Mapping[str, str]
    flags: frozenset[str]

    @property
    def vhost(self) -> str:
        """The vhost of -p, "/" by default."""
        return self.values.get("vhost", "/")

    @property
    def timeout_s(self) -> float | None:
        """Seconds of --timeout; None without one, or where it sets no limit ("infinity", 0).

        Raises:
            CtlError: 64 for what is no number.
        """
        text = self.values.get("timeout", "infinity")
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if math.isnan(seconds):
            raise CtlError(EXIT_USAGE, f"--timeout must be a number of seconds, found {text!r}")
        return seconds if 0 < seconds < math.inf else None


def is_valued(word: str) -> bool:
    """True for an option whose value is the next word."""
    return word in _VALUED


def parse(words: Sequence[str]) -> Invocation:
    """Take the words of a command line apart.

    A lone `--` ends the options, so that a password may begin with a dash.

    Args:
        words: What stands after `warrenmq ctl`.

    Raises:
        CtlError: 64, an unknown option or one without its value.
    """
    plain: list[str] = []
    values: dict[str, str] = {}
    flags: set[str] = set()
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            plain += left
            break
        if not word.startswith("-") or word == "-":
            plain.append(word)
        elif name in _VALUED:
            if not equals:
                if not left:
                    raise CtlError(EXIT_USAGE, f"{name} needs a value")
                value = left.pop(0)
            values[_VALUED[name]] = value
        elif word in _FLAGS:
            flags.add(_FLAGS[word])
        else:
            raise CtlError(
                EXIT_USAGE, f"unknown option {word}; a value that begins with - goes after --"
            )
    return Invocation(plain[0] if plain else "", tuple(plain[1:]), values, frozenset(flags))
