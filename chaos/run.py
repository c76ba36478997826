"""`python -m chaos.run`: load, faults, heal, drain, verdict.

Exit code 0: every promise held. 1: one did not. 2: the run cannot be judged.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pika.exceptions

from chaos import clients, generators, history, judge, mirroring, report
from chaos import options as run_options
from chaos.checkers import verdict as judging
from chaos.cluster import Cluster, ClusterFailed, wait_until
from chaos.containers import ComposeCluster
from chaos.faults import schedule
from chaos.faults.nemesis import Nemesis
from chaos.history import Recorder, Recording
from chaos.local import LocalCluster
from chaos.options import Fault, Options
from chaos.proxies import Proxies

_HEAL_TIMEOUT_S = 60.0
_LEADER_TIMEOUT_S = 20.0
_WARM_CONFIRMS = 20
_FILL_PER_S = 5_000
_FILL_TIMEOUT_S = 120.0
_SLOW_ACK_S = 0.2
_WARM_TIMEOUT_S = 30.0
_CALM_S = 4.0
_IDLE_S = 1.0
_IDLE_TIMEOUT_S = 45.0
_JOIN_TIMEOUT_S = 40.0
_DRAIN_TRIES = 5
_DRAIN_TIMEOUT_S = 60.0
_CALL_TIMEOUT_S = 20.0
_DEPTH_TIMEOUT_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once.

    Returns:
        The exit code.
    """
    parsed = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    options = _options(parsed)
    run_id = f"{options.queue}-{options.fault}-{options.seed}-{uuid.uuid4().hex[:6]}"
    directory = Path(parsed.dir) / run_id
    directory.mkdir(parents=True)
    run_options.save(directory, options)
    print(f"{run_id}: {run_options.command(options)}", flush=True)
    try:
        with _cluster(parsed, options) as (cluster, proxies):
            recording = Recording(run_id, directory)
            _Run(options, cluster, proxies, recording).perform()
            return _judge(directory, options, recording, cluster)
    except ClusterFailed as error:
        print(f"cannot judge: {error}", file=sys.stderr)
        return judging.EXIT_CODES["unknown"]


@contextmanager
def _cluster(
    parsed: argparse.Namespace, options: Options
) -> Iterator[tuple[Cluster, Proxies | None]]:
    """The nodes of the run: somebody's that run, or its own in a directory that goes with it."""
    if parsed.compose or parsed.cluster:
        cluster: Cluster = LocalCluster(Path(parsed.cluster or ""))
        if parsed.compose:
            cluster = ComposeCluster(parsed.compose)
        cluster.attach()
        yield cluster, None
        return
    home = Path(tempfile.mkdtemp(prefix="chaos-"))
    own, proxies = LocalCluster(home), Proxies(options.seed) if options.needs_links else None
    try:
        between = None if proxies is None else proxies.start
        own.start(options.seed, port=parsed.port, stand_between=between)
        yield own, proxies
    finally:
        _remove(own, home)
        if proxies is not None:
            proxies.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.run", description="Break a cluster under load and judge what it did."
    )
    add = parser.add_argument
    add("--queue", choices=run_options.QUEUES, default="quorum")
    add(
        "--fault", default="kill-leader", type=_fault,
        help=f"{', '.join(run_options.FAULTS)}; master means leader, follower means mirror",
    )  # fmt: skip
    add("--seed", type=int, default=1, help="draws everything that is drawn")
    add("--seconds", type=int, help="how long the load lasts")
    add("--rate", type=int, default=200, help="messages per second, all publishers")
    add("--times", "--cycles", type=int, help="how often the fault happens")
    waits = parser.add_mutually_exclusive_group()
    waits.add_argument(
        "--when-synchronised", action="store_true", default=None,
        help="each fault waits until all mirrors are synchronised; usual for mirrored queues",
    )  # fmt: skip
    waits.add_argument("--at-once", dest="when_synchronised", action="store_false", default=None)
    add("--backlog", type=int, default=0, help="messages that are there before the load begins")
    add("--direction", choices=run_options.DIRECTIONS, default="out", help="of a one-way cut")
    add("--ha-mode", choices=("all", "exactly", "nodes"), default="all")
    add("--ha-params", default="", help='a number, or "rabbit@node1,rabbit@node2"')
    add("--ha-sync-mode", choices=("automatic", "manual"))
    add("--promote-on-failure", choices=run_options.PROMOTES, default="always")
    add("--promote-on-shutdown", choices=run_options.PROMOTES, default="when-synced")
    add("--dir", default="store", help="where runs are kept")
    add("--port", type=int, help="first of six ports in a row; free ones unless said")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--cluster", metavar="DIR", help="a running cluster instead of an own one")
    place.add_argument(
        "--compose", metavar="PROJECT", help="containers that run, instead; guest/guest"
    )
    return parser


def _fault(text: str) -> Fault:
    try:
        return run_options.fault_named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def options_of(arguments: Sequence[str]) -> Options:
    """The options that a command line asks for."""
    return _options(_parser().parse_args(arguments))


def _options(parsed: argparse.Namespace) -> Options:
    policy = {"ha_sync_mode": parsed.ha_sync_mode} if parsed.ha_sync_mode else {}
    return run_options.with_defaults(
        parsed.queue,
        parsed.fault,
        parsed.seed,
        seconds=parsed.seconds,
        cycles=parsed.times,
        when_synchronised=parsed.when_synchronised,
        rate=parsed.rate,
        backlog=parsed.backlog,
        direction=parsed.direction,
        ha_mode=parsed.ha_mode,
        ha_params=parsed.ha_params,
        promote_on_failure=parsed.promote_on_failure,
        promote_on_shutdown=parsed.promote_on_shutdown,
        **policy,
    )


class _Run:
    """One run against a cluster that serves; the phases in order."""

    def __init__(
        self,
        options: Options,
        cluster: Cluster,
        proxies: Proxies | None,
        recording: Recording,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._proxies = proxies
        self._recording = recording
        self._recorder = recording.recorder("nemesis")
        self._publishers: list[clients.Publisher] = []
        self._consumers: list[clients.Consumer] = []
        self._queue = f"{options.name}.{recording.run_id}"
        self._nemesis = Nemesis(
            cluster, proxies, options, self._queue, self._recorder, recording.recorder("watch"),
            recording.epoch,
        )  # fmt: skip

    def perform(self) -> None:
        """Load, faults, heal, drain.

        Raises:
            ClusterFailed: It did not get as far as a load to judge.
        """
        self._declare()
        self._fill()
        if not self._options.has_late_consumers:
            self._start_consumers()
        self._start_publishers()
        self._nemesis.begin()
        try:
            self._load()
        finally:
            self._heal()
            for each in self._consumers:
                each.ack_delay_s = 0.0
            if self._options.has_late_consumers:
                self._start_consumers()
            self._stop_publishers()
            self._stop_consumers()
            self._nemesis.end()
        self._drain()

    def _declare(self) -> None:
        first, options = self._cluster.names[0], self._options
        if options.queue == "mirrored":
            self._cluster.set_policy(first, options.name, mirroring.policy(options, self._queue))
        port = self._cluster.amqp_port(first)
        kind = "classic" if options.queue == "mirrored" else options.queue
        try:
            clients.within(
                _CALL_TIMEOUT_S, "declare", lambda: clients.declare(port, self._queue, kind)
            )
        except (pika.exceptions.AMQPError, OSError) as error:
            raise ClusterFailed(f"declare on {first}: {error!r}") from error
        if options.queue == "mirrored":
            self._nemesis.wait_synchronised()

    def _fill(self) -> None:
        """Publish the backlog, and wait until all of it is confirmed."""
        count = self._options.backlog
        if not count:
            return
        names, plan = self._cluster.names, generators.publishes
        publisher = clients.Publisher(
            "p0", self._recording.recorder("p0"), generators.nodes_from(names, 0), self._ports(),
            queue=self._queue, plan=plan(self._options.seed, "p0", _FILL_PER_S),
            is_named=self._options.queue == "stream",
        )  # fmt: skip
        publisher.start()
        try:
            wait_until(
                lambda: self._recording.confirmed_count() >= count, "the backlog", _FILL_TIMEOUT_S
            )
        finally:
            self._end([publisher])

    def _start_consumers(self) -> None:
        names, ports = self._cluster.names, self._ports()
        options, recording = self._options, self._recording
        for i in range(options.consumers):
            name = f"c{i + 1}"
            # The first is told of each failover and begins anew; the others are to notice nothing.
            is_told = options.queue == "mirrored" and i == 0
            kind = clients.StreamConsumer if options.queue == "stream" else clients.Consumer
            self._consumers.append(
                kind(
                    name, recording.recorder(name), generators.nodes_from(names, i + 1), ports,
                    queue=self._queue, plan=generators.handlings(options.seed, name),
                    arguments={"x-cancel-on-ha-failover": True} if is_told else None,
                    ack_delay_s=_SLOW_ACK_S if options.backlog else 0.0,
                )
            )  # fmt: skip
            self._consumers[-1].start()

    def _start_publishers(self) -> None:
        names, ports = self._cluster.names, self._ports()
        options, recording = self._options, self._recording
        for i in range(options.publishers):
            name = f"p{i + 1}"
            plan = generators.publishes(options.seed, name, options.rate / options.publishers)
            self._publishers.append(
                clients.Publisher(
                    name, recording.recorder(name), generators.nodes_from(names, i), ports,
                    queue=self._queue, plan=plan, is_named=options.queue == "stream",
                )
            )  # fmt: skip
            self._publishers[-1].start()

    def _ports(self) -> dict[str, int]:
        return {name: self._cluster.amqp_port(name) for name in self._cluster.names}

    def _load(self) -> None:
        wait_until(
            lambda: self._recording.confirmed_count() >= self._options.backlog + _WARM_CONFIRMS,
            "the first confirms",
            _WARM_TIMEOUT_S,
        )
        self._recorder.write("load", "invoke")
        began = time.monotonic()
        try:
            self._nemesis.run(schedule.plan(self._options), began)
            left_s = began + self._options.seconds - time.monotonic()
            time.sleep(max(_CALM_S if self._options.cycles else 0.0, left_s))
        except ClusterFailed as error:
            self._recorder.write("health", "fail", code=str(error)[:2000])

    def _heal(self) -> None:
        """Heal everything; publishers go on, so that service after the heal is seen."""
        try:
            if self._proxies is not None:
                self._proxies.heal()
            self._cluster.heal(_HEAL_TIMEOUT_S)
            wait_until(
                lambda: self._cluster.leader(self._queue) is not None,
                "the queue has a leader",
                _LEADER_TIMEOUT_S,
            )
        except ClusterFailed as error:
            self._recorder.write("health", "fail", code=str(error)[:2000])
        else:
            self._recorder.write("health", "ok")
        options = self._options
        if options.queue == "mirrored" and options.ha_sync_mode == "automatic":
            self._wait_synchronised()

    def _wait_synchronised(self) -> None:
        """Under load: an automatic synchronisation has to get there all the same."""
        try:
            self._nemesis.wait_synchronised()
        except ClusterFailed as error:
            self._recorder.write("health", "fail", code=str(error))

    def _stop_publishers(self) -> None:
        self._recorder.write("load", "ok")
        self._end(self._publishers)

    def _stop_consumers(self) -> None:
        """Let them take what is there, then stop them; the drain gets the rest."""
        try:
            wait_until(
                lambda: time.monotonic() - max(c.last_delivery for c in self._consumers) > _IDLE_S,
                "consumers have nothing more to take",
                _IDLE_TIMEOUT_S,
            )
        except ClusterFailed as error:
            self._recorder.write("health", "fail", code=str(error))
        self._end(self._consumers)

    def _end(self, threads: Sequence[clients.Client]) -> None:
        for client in threads:
            client.end()
        deadline = time.monotonic() + _JOIN_TIMEOUT_S
        for client in threads:
            client.join(max(0.1, deadline - time.monotonic()))
            if client.is_alive():
                self._recorder.write("health", "fail", code=f"{client.name} does not end")
            if client.crash is not None:
                raise ClusterFailed(f"{client.name} crashed: {client.crash!r}") from client.crash

    def _drain(self) -> None:
        recorder = self._recording.recorder("drain")
        counts: dict[str, int] = {}
        for node in self._cluster.names:
            count = self._drain_through(node, recorder)
            if count is None:
                return
            counts[node] = count
            recorder.write("drain", "ok", node=node, queue=self._queue, size=count)
        for node in self._cluster.names:
            is_stream = self._options.queue == "stream"
            size = self._unread(node, counts[node]) if is_stream else self._depth(node)
            recorder.write("depth", "ok", node=node, queue=self._queue, size=size)

    def _drain_through(self, node: str, recorder: Recorder) -> int | None:
        port, why = self._cluster.amqp_port(node), ""
        for attempt in range(_DRAIN_TRIES):

            def drain(attempt: int = attempt) -> int:
                if self._options.queue == "stream":
                    return clients.read_stream(port, self._queue, recorder, node, attempt + 1)
                return clients.drain(port, self._queue, recorder, node)

            try:
                return clients.within(_DRAIN_TIMEOUT_S, f"drain through {node}", drain)
            except TimeoutError as error:
                why = str(error)
                break
            except (pika.exceptions.AMQPError, OSError) as error:
                why = repr(error)
                recorder.write("close", "info", node=node, connection=f"drain.{node}", code=why)
                time.sleep(1)
        self._recorder.write("drain", "fail", node=node, queue=self._queue, code=why)
        return None

    def _unread(self, node: str, read: int) -> int:
        """How many of a stream's messages could not be read through a node."""
        port = self._cluster.amqp_port(node)
        try:
            there = clients.within(
                _CALL_TIMEOUT_S, f"depth at {node}", lambda: clients.depth(port, self._queue)
            )
        except (pika.exceptions.AMQPError, OSError) as error:
            self._recorder.write("health", "fail", node=node, code=repr(error))
            return -1
        return there - read

    def _depth(self, node: str) -> int:
        """Ready and unacked messages once the node's numbers have settled."""
        sizes = [-1]

        def is_empty() -> bool:
            found = self._cluster.queue(node, self._queue) or {}
            port = self._cluster.amqp_port(node)
            ready = clients.within(
                _CALL_TIMEOUT_S, f"depth at {node}", lambda: clients.depth(port, self._queue)
            )
            sizes.append(max(ready, int(found.get("messages") or 0)))
            return sizes[-1] == 0

        try:
            wait_until(is_empty, f"{node} shows an empty queue", _DEPTH_TIMEOUT_S)
        except ClusterFailed:
            pass
        except (pika.exceptions.AMQPError, OSError) as error:
            self._recorder.write("health", "fail", node=node, code=repr(error))
        return sizes[-1]


def _judge(directory: Path, options: Options, recording: Recording, cluster: Cluster) -> int:
    events = recording.merge()
    found = judging.judge(events, options)
    judge.write(directory, options, found, events, cluster.logs())
    print("\n".join(report.summary(found)))
    print(f"{directory / history.FILE}", flush=True)
    return judge.exit_code(found)


def _terminated(_number: int, _frame: object) -> None:
    """SIGTERM unwinds like Ctrl-C, so that the nodes do not outlive the run."""
    sys.exit(judging.EXIT_CODES["unknown"])


def _remove(cluster: LocalCluster, home: Path) -> None:
    try:
        cluster.stop()
    except ClusterFailed as error:
        print(f"stopping the cluster: {error}", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
