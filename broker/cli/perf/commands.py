"""The options of `warrenmq perf`: rabbitmq-perf-test's letters."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from broker.cli.perf.connection import PerfError, tls_context
from broker.cli.perf.load import LoadPlan, run

T = TypeVar("T")


@click.command("perf", context_settings={"help_option_names": ["-?", "--help"]})
@click.option("-h", "--uri", default="amqp://127.0.0.1:5672", show_default=True)
@click.option("-H", "--uris", help="Several, comma separated, in turn.")
@click.option("-x", "--producers", default=1, show_default=True, type=click.IntRange(0))
@click.option("-y", "--consumers", default=1, show_default=True, type=click.IntRange(0))
@click.option("-u", "--queue", default="perf-test", show_default=True)
@click.option("-qp", "--queue-pattern", help="Many queues, as perf-%d; with -qpf and -qpt.")
@click.option("-qpf", "--queue-pattern-from", default=1)
@click.option("-qpt", "--queue-pattern-to", default=1)
@click.option("-qa", "--queue-args", help="key=value,... for queue.declare.")
@click.option("-ca", "--consumer-args", help="key=value,... for basic.consume.")
@click.option(
    "-sco",
    "--stream-consumer-offset",
    help="Where consumers of a stream begin: first, last, next, an offset, or a time as "
    "2026-11-24T07:45:54Z.",
)
@click.option("-qq", "--quorum-queue", is_flag=True, help="Durable quorum queues.")
@click.option("-ad", "--auto-delete", type=bool, help="[default: true, false with -qq]")
@click.option("-p", "--predeclared", is_flag=True, help="Don't create exchanges and queues.")
@click.option("--purge", is_flag=True, help="Purge the queues first; streams stay as they are.")
@click.option("-e", "--exchange", default="")
@click.option("-t", "--type", "exchange_type", default="direct", show_default=True)
@click.option("-k", "--routing-key")
@click.option("--binding-key", help="Queues are bound with it.  [default: --routing-key]")
@click.option("--routing-keys", default=0, help="With %d in --routing-key: numbers below this.")
@click.option("--distinct", is_flag=True, help="Each message has ids and a trace of its own.")
@click.option("--size-varies", is_flag=True, help="With --distinct: half to twice the size.")
@click.option("-s", "--size", default=12, show_default=True, help="Body size in bytes.")
@click.option("-f", "--flag", multiple=True, type=click.Choice(["persistent", "mandatory"]))
@click.option("-c", "--confirm", default=0, help="Publishes awaiting a confirm at most; 0: none.")
@click.option("--confirm-batch", default=0, help="Publish so many, wait for all their confirms.")
@click.option("-m", "--ptxsize", default=0, help="Publishes in a transaction; 0: none.")
@click.option("-q", "--qos", default=0, help="Consumer prefetch; 0 is unlimited.")
@click.option("-a", "--autoack", is_flag=True)
@click.option("-A", "--multi-ack-every", default=1, show_default=True)
@click.option("--ack-singly", is_flag=True, help="An ack for each delivery, none is multiple.")
@click.option("-r", "--rate", default=0.0, help="Messages/s of each producer; 0 is unlimited.")
@click.option("-z", "--time", "seconds", default=0.0, help="Seconds to run; 0 is for ever.")
@click.option("-C", "--pmessages", default=0, help="Messages of each producer.")
@click.option(
    "-D", "--cmessages", default=0, help="Messages of each consumer, counted for all together."
)
@click.option("-i", "--interval", default=1.0, show_default=True)
@click.option(
    "-udsc", "--use-default-ssl-context", is_flag=True, help="amqps://: check certificates."
)
@click.option("--cacertfile", default="", help="Check them against these authorities, PEM.")
@click.option("--certfile", default="", help="The clients' certificate, PEM.")
@click.option("--keyfile", default="", help="Its key.  [default: in --certfile]")
@click.option("--id", "run_id")
@click.option("--json", "json_path", help="Write the summary there; - is standard output, alone.")
def command(**options: Any) -> None:
    """Publish and consume as fast as it goes, or at a rate, and tell how fast that was."""
    try:
        plan = plan_of(options)
    except PerfError as error:
        click.echo(f"warrenmq perf: {error}", err=True)
        sys.exit(1)
    json_path: str | None = options["json_path"]

    def say(line: str) -> None:
        click.echo(line, err=json_path == "-")

    try:
        summary = loop_runner()(run(plan, say))
    except* PerfError as errors:
        click.echo(f"warrenmq perf: {errors.exceptions[0]}", err=True)
        sys.exit(1)
    except* KeyboardInterrupt:
        sys.exit(130)
    if json_path is None:
        from broker.cli.perf.report import summary_lines

        click.echo("\n".join(summary_lines(plan.run_id, summary)))
    elif json_path == "-":
        click.echo(json.dumps(summary))
    else:
        Path(json_path).write_text(json.dumps(summary) + "\n")


def _tls(options: dict[str, Any]) -> ssl.SSLContext:
    return tls_context(
        verifies=options["use_default_ssl_context"],
        cacertfile=options["cacertfile"],
        certfile=options["certfile"],
        keyfile=options["keyfile"],
    )


def plan_of(options: dict[str, Any]) -> LoadPlan:
    """The plan that options ask for.

    Args:
        options: The command's parameters by name.

    Raises:
        click.BadParameter: -qa or -ca is not key=value,..., -sco is no offset, or an option
            needs another.
        PerfError: A certificate can't be used.
    """
    if (options["size_varies"] or options["routing_keys"]) and not options["distinct"]:
        raise click.BadParameter("--size-varies and --routing-keys need --distinct")
    arguments = _arguments("-qa", options["queue_args"])
    consumer_arguments = _arguments("-ca", options["consumer_args"])
    if options["stream_consumer_offset"] is not None:
        consumer_arguments["x-stream-offset"] = _offset(options["stream_consumer_offset"])
    is_quorum = options["quorum_queue"]
    if is_quorum:
        arguments["x-queue-type"] = "quorum"
    queues: tuple[str, ...] = (options["queue"],)
    pattern = options["queue_pattern"]
    if pattern:
        numbers = range(options["queue_pattern_from"], options["queue_pattern_to"] + 1)
        queues = tuple(pattern.replace("%d", str(n)) for n in numbers)
    uris = tuple((options["uris"] or options["uri"]).split(","))
    persistent = "persistent" in options["flag"] or is_quorum
    auto_delete = options["auto_delete"]
    return LoadPlan(
        uris=uris,
        producers=options["producers"],
        consumers=options["consumers"],
        queues=queues,
        predeclared=options["predeclared"],
        purges=options["purge"],
        durable=persistent,
        auto_delete=not is_quorum if auto_delete is None else auto_delete,
        queue_arguments=arguments,
        consumer_arguments=consumer_arguments,
        exchange=options["exchange"],
        exchange_type=options["exchange_type"],
        routing_key=options["routing_key"],
        binding_key=options["binding_key"],
        routing_keys=options["routing_keys"],
        is_distinct=options["distinct"],
        size_varies=options["size_varies"],
        size_bytes=options["size"],
        persistent=persistent,
        mandatory="mandatory" in options["flag"],
        confirm=options["confirm"] or options["confirm_batch"],
        confirm_batch=options["confirm_batch"],
        tx_size=options["ptxsize"],
        prefetch=options["qos"],
        autoack=options["autoack"],
        multi_ack_every=options["multi_ack_every"],
        acks_singly=options["ack_singly"],
        rate_per_s=options["rate"],
        seconds=options["seconds"],
        messages_per_producer=options["pmessages"],
        messages_per_consumer=options["cmessages"],
        interval_s=options["interval"],
        tls=_tls(options) if any(uri.startswith("amqps:") for uri in uris) else None,
        run_id=options["run_id"] or time.strftime("test-%H%M%S"),
    )


def _arguments(option: str, text: str | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        key, equals, value = part.partition("=")
        if not equals:
            raise click.BadParameter(f"{option}: expected key=value, found {part!r}")
        found[key.strip()] = int(value) if value.lstrip("-").isdigit() else _flag(value)
    return found


def _offset(text: str) -> object:
    """The value of x-stream-offset: a word, a number or a time (`-sco` of rabbitmq-perf-test)."""
    if text in ("first", "last", "next"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"-sco: expected first, last, next, an offset or a time, found {text!r}"
        ) from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _flag(value: str) -> object:
    return {"true": True, "false": False}.get(value, value)


def loop_runner() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Return the runner of the event loop: uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:  # no wheel for this system
        return asyncio.run
    runner: Callable[[Coroutine[Any, Any, T]], T] = uvloop.run
    return runner
