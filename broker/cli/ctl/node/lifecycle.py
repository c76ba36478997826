"""Commands that end a node's process, close its ports, or look at how its event loop does.

Source: the commands of rabbitmq_cli (texts); rabbitmqctl 3.10.8.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from broker.cli.ctl.api import EXIT_SOFTWARE, EXIT_UNAVAILABLE, Api, CtlError, UsageError
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import PollUntilTimeout
from broker.cli.ctl.node.surroundings import process
from broker.cli.ctl.output import Answer

_STOP_S: Final = 120.0
"""As long as leaders and masters may take to be handed over, and more."""

_LOCAL: Final = ("127.0.0.1", "localhost", "::1")
_ROUNDS: Final = 10
_ROUND_S: Final = 0.5
"""rabbitmq-diagnostics maybe_stuck looks for 5 s, twice a second."""

STUCK_MS: Final = 1000.0
"""A turn of the event loop that lasts longer is suspicious."""

_SAMPLE_S: Final = 5.0


def stop(api: Api, call: Invocation) -> str | None:
    """End the process; with a pid file wait until it is gone."""
    try:
        pid = _stop(api)
    except CtlError as error:
        if error.exit_code == EXIT_UNAVAILABLE and "idempotent" in call.flags:
            return f"Node {call.values.get('node', api.url)} is no longer running"
        raise
    if call.arguments:
        pid = _pid_in(call.arguments[0])
    _await_end(api, call, pid, is_awaited=bool(call.arguments))
    return None


def shutdown(api: Api, call: Invocation) -> str:
    """End the process and wait until it is gone, unless --no-wait."""
    pid = _stop(api)
    named = f"node {call.values.get('node', api.url)} running at PID {pid}"
    if "no_wait" in call.flags:
        return f"Shutting down RabbitMQ {named}"
    _await_end(api, call, pid, is_awaited=True)
    return (
        f"Shutting down RabbitMQ {named}\nWaiting for PID {pid} to terminate\n"
        f"RabbitMQ {named} successfully shut down"
    )


def _stop(api: Api) -> int:
    return int(api.request("POST", "/api/node/stop")["pid"])


def _pid_in(file: str) -> int:
    try:
        return int(Path(file).read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise CtlError(EXIT_SOFTWARE, f"no process id can be read from {file}: {error}") from error


def _await_end(api: Api, call: Invocation, pid: int, *, is_awaited: bool) -> None:
    """Wait until the API is gone; then, where it is this machine's, the process."""
    poll = PollUntilTimeout(call, _STOP_S)
    while _answers(api):
        poll.wait(f"{api.url} did not stop")
    is_here = urlsplit(api.url).hostname in _LOCAL
    while is_awaited and is_here and _lives(pid):
        poll.wait(f"process {pid} did not end")


def _answers(api: Api) -> bool:
    try:
        api.status_of("/healthz")
    except CtlError as error:
        return error.exit_code != EXIT_UNAVAILABLE
    return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether the process has ended and its parent has not looked yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["Z"]


def force_gc(api: Api, _: Invocation) -> None:
    """Collect garbage."""
    api.request("POST", "/api/node/force_gc")


def suspend_listeners(api: Api, _: Invocation) -> None:
    """Close the ports for clients."""
    api.request("POST", "/api/node/suspend_listeners")


def resume_listeners(api: Api, _: Invocation) -> None:
    """Open them again."""
    api.request("POST", "/api/node/resume_listeners")


def check_interval(call: Invocation) -> None:
    """Refuse a sampling interval that is no number of seconds."""
    text = call.values.get("sample_interval", "1")
    try:
        is_fine = 0 < float(text) <= 3600  # noqa: PLR2004 - an hour
    except ValueError:
        is_fine = False
    if not is_fine:
        raise UsageError(f"--sample-interval must be a number of seconds, found '{text}'")


def thread_banner(call: Invocation) -> str:
    """In rabbitmq-diagnostics' words."""
    seconds = call.values.get("sample_interval", f"{_SAMPLE_S:g}")
    return f"Will collect runtime thread stats on {{node}} for {seconds} seconds..."


def runtime_thread_stats(api: Api, call: Invocation) -> Answer:
    """The share of a processor that the event loop's thread has had over an interval."""
    before = process(api)["event_loop"]
    time.sleep(float(call.values.get("sample_interval", _SAMPLE_S)))
    found = process(api)
    after = found["event_loop"]
    real_ms = max(1, after["now_ms"] - before["now_ms"])
    busy = min(1.0, (after["busy_ms"] - before["busy_ms"]) / real_ms)
    lines = [
        f"Average thread real-time    : {real_ms * 1000:>8} us",
        f"Longest turn of the last {after['window_s']} s: {after['longest_turn_ms']} ms",
        "",
        f"{'Thread':>14} {'busy':>8} {'sleep':>8}",
        "",
        "Stats per thread:",
        f"{'event_loop( 1)':>14} {busy:>8.2%} {1 - busy:>8.2%}",
        "",
        f"Threads: {found['threads']}, which all wait but the event loop",
    ]
    facts = {"event_loop": {**after, "busy": round(busy, 4)}, "threads": found["threads"]}
    return Answer("\n".join(lines), facts)


def maybe_stuck(api: Api, _: Invocation) -> Answer:
    """Look for some seconds whether the event loop turns, from outside and by its own measure."""
    lines = ["There is 1 event loop."]
    slowest_ms = 0.0
    for left in range(_ROUNDS, 0, -1):
        begins_s = time.monotonic()
        api.status_of("/healthz")
        took_s = time.monotonic() - begins_s
        slowest_ms = max(slowest_ms, took_s * 1000)
        left_ms = int(left * _ROUND_S * 1000)
        lines.append(f"Answered in {took_s * 1000:.0f} ms this round, {left_ms}ms to go.")
        time.sleep(max(0.0, _ROUND_S - took_s))
    facts: dict[str, Any] = process(api)["event_loop"]
    longest_ms = max(slowest_ms, float(facts["longest_turn_ms"]))
    count = int(longest_ms >= STUCK_MS)
    lines += [
        f"Found {count} suspicious processes.",
        f"Longest turn of the last {facts['window_s']} s: {facts['longest_turn_ms']} ms; "
        f"{facts['long_turns']} took over {facts['long_turn_ms']} ms since the start.",
    ]
    return Answer("\n".join(lines), {"suspicious": count, "longest_ms": round(longest_ms, 1)})
