"""Executes a session's effects. Contains no decisions: commands for a queue go to its handle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol

from broker.audit import trail
from broker.audit.actor import Actor
from broker.errors import AmqpError, Refusal, ReplyCode
from broker.fifo.commands import Get, SetActive
from broker.metadata.commands import AnyCommand
from broker.ports import Done, GetResult
from broker.queues.handle import QueueHandle
from broker.queues.streams.client import StreamClient
from broker.server.channel_port import ChannelPort
from broker.server.context import ServerContext
from broker.server.throttle import Behind, Throttle
from broker.session import effects
from broker.session.session import CLOSE_MS_MAX, Session

_log = logging.getLogger(__name__)

GOT_BYTES_MAX: Final = 1024 * 1024
"""What basic.get may bring a connection between two writes; one larger message comes alone."""

_CHANGES: Final = {
    (40, 10): "exchange.declare",
    (40, 20): "exchange.delete",
    (40, 30): "binding.add",
    (40, 40): "binding.remove",
    (50, 10): "queue.declare",
    (50, 20): "binding.add",
    (50, 40): "queue.delete",
    (50, 50): "binding.remove",
}
"""Methods that change metadata, under the names of `broker.audit.changes`."""


class Client(Protocol):
    """The connection of a session, as far as running its effects needs it."""

    def wrote(self) -> None:
        """The session may have output."""
        ...

    def delivered(self, size_bytes: int) -> None:
        """About so many bytes were just delivered."""
        ...

    def got(self) -> None:
        """A basic.get has brought a message: `go_on` when it is written."""
        ...

    def fail(self, error: AmqpError) -> None:
        """End the connection with a hard error."""
        ...


class _HeldBack:
    """What the publishes of a list shall wait for.

    Attributes:
        queues: Queues that are behind, by incarnation; at 0 the way of direct replies.
        slowdown_us: Microseconds, for consumers that lag.
        channels: Keys of the channels that published to any of those.
    """

    __slots__ = ("channels", "queues", "slowdown_us")

    def __init__(self) -> None:
        self.queues: dict[int, Behind] = {}
        self.slowdown_us = 0
        self.channels: set[int] = set()


class EffectRunner:
    """Runs the effects of one session.

    Args:
        context: The node.
        session: The session.
        client: Its connection.
        throttle: Slows the connection down while queues are behind.

    Attributes:
        is_full: True while the client does not read: no basic.get is executed then (`go_on`).
    """

    __slots__ = (
        "_blocked",
        "_client",
        "_context",
        "_gets",
        "_got_bytes",
        "_held_back",
        "_is_running",
        "_later",
        "_ports",
        "_queues",
        "_session",
        "_throttle",
        "is_full",
    )

    def __init__(
        self,
        context: ServerContext,
        session: Session,
        client: Client,
        throttle: Throttle,
    ) -> None:
        self._context = context
        self._queues = context.queues
        self._session = session
        self._client = client
        self._throttle = throttle
        self._ports: dict[int, ChannelPort] = {}
        # None where there is none: to look whether a list is empty is to read the list, too.
        self._later: list[effects.Effect] | None = None  # of answers that came while a list is run
        self._is_running = False
        self._gets: list[effects.QueueRequest] = []  # of clients that don't read
        self._blocked: dict[int, list[effects.Effect]] | None = None  # by queue: it has no room yet
        self._held_back: _HeldBack | None = None  # None: what is run waits for nothing
        self._got_bytes = 0  # by basic.get, since `go_on`
        self.is_full = False

    def run(self, asked: list[effects.Effect]) -> None:
        """Execute effects in order. Effects that one of them causes run after the whole list.

        An answer that comes at once may end the connection. If its releases ran in between, a
        consume later in the list would attach a consumer that is never released. Pausing and
        resuming consumers is done at once: otherwise each queue in the list would serve a full
        socket.
        """
        if self._is_running:
            for effect in asked:
                if _is_set_active(effect):
                    self._HANDLERS[type(effect)](self, effect)
                else:
                    self._put_later(effect)
            return
        handlers = self._HANDLERS
        todo: list[effects.Effect] | None = asked
        self._is_running = True
        try:
            while todo:
                for effect in todo:
                    if self._blocked is not None and self._is_behind_blocked(effect):
                        continue
                    handlers[type(effect)](self, effect)
                todo, self._later = self._later, None
        finally:
            self._is_running = False
        held_back = self._held_back
        if held_back is not None:
            self._held_back = None
            self._throttle.hold(held_back.queues, held_back.slowdown_us, held_back.channels, self)

    def publish(self, effect: effects.PublishTo) -> None:
        """Execute one publish, as `run` would."""
        if self._is_running or self._blocked is not None:
            self.run([effect])
            return
        self._is_running = True
        try:
            self._publish(effect)
        finally:
            self._is_running = False
        if self._later is not None or self._held_back is not None:
            later, self._later = self._later, None
            self.run(later or [])

    def _put_later(self, effect: effects.Effect) -> None:
        if self._later is None:
            self._later = []
        self._later.append(effect)

    def _hold_back(self) -> _HeldBack:
        """Return what the list that is run waits for, to be added to."""
        if self._held_back is None:
            self._held_back = _HeldBack()
        return self._held_back

    def _block(self, effect: effects.PublishTo, handle: QueueHandle) -> None:
        """Keep a publish until its queue has room (P12)."""
        uid = effect.queue.uid
        if self._blocked is None:
            self._blocked = {}
        self._blocked.setdefault(uid, []).append(effect)
        held_back = self._hold_back()
        held_back.queues[uid] = handle
        held_back.channels.add(effect.channel)

    def _is_behind_blocked(self, effect: effects.Effect) -> bool:
        """True if an effect has been put behind blocked ones of the same queue."""
        if _is_set_active(effect):
            return False
        queue = getattr(effect, "queue", None)
        uid = getattr(effect, "queue_uid", 0) if queue is None else queue.uid
        waiting = None if self._blocked is None else self._blocked.get(uid)
        if waiting is None:
            return False
        waiting.append(effect)
        return True

    def went_on(self, uid: int) -> None:
        """A queue has room again: execute the effects that were blocked for it."""
        waiting = None if self._blocked is None else self._blocked.pop(uid, None)
        self._blocked = self._blocked or None
        if waiting is not None:
            self.run_and_write(waiting)

    def run_and_write(self, asked: list[effects.Effect]) -> None:
        """Execute effects, and have the session's output written."""
        if asked:
            self.run(asked)
        self._client.wrote()

    def _port(self, channel: int) -> ChannelPort:
        port = self._ports.get(channel)
        if port is None:
            port = ChannelPort(self._session, channel, self, self._client)
            self._ports[channel] = port
        return port

    def failed(self) -> None:
        """End the connection, because of a bug."""
        self._client.fail(AmqpError(ReplyCode.INTERNAL_ERROR, "a bug in this broker; see its log"))

    def _completion(self, token: int) -> Callable[[object], None]:
        def done(result: object) -> None:
            if isinstance(result, GetResult) and result.delivery is not None:
                self._got_bytes += len(result.delivery.message.content)
                self._client.got()
            now_ms = self._context.clock.monotonic_ms()
            self.run_and_write(self._session.complete(token, result, now_ms))

        return done

    def _publish(self, effect: effects.PublishTo) -> None:
        handle = self._queues.open(effect.queue)
        if not handle.has_room(effect.messages):
            self._block(effect, handle)
            return
        port = self._ports.get(effect.channel) or self._port(effect.channel)
        if effect.is_unit and isinstance(handle, StreamClient):
            is_ahead = handle.publish_unit(effect.messages, effect.seqnos, port)
        else:
            is_ahead = handle.publish(effect.messages, effect.seqnos, port)
        if not is_ahead:
            return
        is_congested, slowdown_us = handle.is_congested, handle.slowdown_us
        if not (is_congested or slowdown_us):
            return
        held_back = self._hold_back()
        held_back.channels.add(effect.channel)
        held_back.slowdown_us += slowdown_us * len(effect.messages)
        if is_congested:
            held_back.queues[effect.queue.uid] = handle

    def _request(self, effect: effects.QueueRequest) -> None:
        """Submit a command. A get waits for a client that has not read what it got before."""
        command = effect.command
        if type(command) is Get and (self.is_full or self._got_bytes > GOT_BYTES_MAX):
            self._gets.append(effect)
            return
        done = self._completion(effect.token) if effect.token else None
        if effect.queue is not None:
            self._queues.open(effect.queue).submit(command, done)
        else:
            self._submit(effect, done)

    def _submit(self, effect: effects.QueueRequest, done: Done | None) -> None:
        handle = self._queues.find(effect.queue_uid)
        if handle is not None:
            handle.submit(effect.command, done)
        elif done is not None:
            done(None)  # the queue went in good order

    def _has_room(self, effect: effects.HasRoom) -> None:
        for each in self._session.resume_no_ack(effect.channel):
            self._request(each)

    def _end_channel(self, effect: effects.ChannelEnded) -> None:
        channel = effect.channel
        for waiting in (self._blocked or {}).values():
            if any(type(each) is effects.PublishTo and each.channel == channel for each in waiting):
                waiting.append(effect)  # they will have its port made again
        self._ports.pop(channel, None)
        self._gets = [
            each
            for each in self._gets
            if not (isinstance(each.command, Get) and each.command.channel_id == effect.channel_id)
        ]
        self._throttle.forget(channel)

    def _attach(self, effect: effects.Attach) -> None:
        handle = self._queues.open(effect.queue)
        handle.attach(effect.checkout, self._port(effect.channel), self._completion(effect.token))

    def after_consumers(self, then: Callable[[], None]) -> Callable[[], None]:
        """End the consumers of auto-delete queues: the session ends.

        Returns:
            To be called once: runs `then` when those queues are gone as well, or are not going, or
            after the time that a channel's close would wait.
        """
        ends = self._session.consumers_to_end()
        if not ends:
            return then
        missing = len(ends) + 1

        def ended(_result: object = None) -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                patience.cancel()
                then()
                self._client.wrote()

        def give_up() -> None:
            nonlocal missing
            if missing > 0:
                missing = 1
                ended()

        patience = asyncio.get_running_loop().call_later(CLOSE_MS_MAX / 1000, give_up)
        for effect in ends:
            self._submit(effect, ended)
        return ended

    def go_on(self) -> None:
        """Run the gets that had to wait: those before them have been written."""
        self._got_bytes = 0
        if self._gets and not self.is_full:
            asked, self._gets = self._gets, []
            self.run_and_write(list(asked))

    def _stat(self, effect: effects.Stat) -> None:
        done = self._completion(effect.token) if effect.token else _nobody
        self._queues.open(effect.queue).stat(done, is_declare=effect.is_declare)

    def _delete_queue(self, effect: effects.DeleteQueue) -> None:
        self._queues.delete(
            effect.queue,
            self._completion(effect.token),
            if_unused=effect.if_unused,
            if_empty=effect.if_empty,
            by=self._by(),
        )

    def _by(self) -> Actor:
        return Actor(self._session.user, "amqp", self._session.name)

    def _propose(self, effect: effects.Propose) -> None:
        self._context.spawn(self._ask(effect.command, self._completion(effect.token)))

    async def _ask(self, command: AnyCommand, done: Callable[[object], None]) -> None:
        try:
            result = await self._context.events.propose(command, self._by())
        except Exception as why:  # noqa: BLE001 - else the channel would wait for ever
            _log.exception("proposal.failed")
            result = Refusal(ReplyCode.INTERNAL_ERROR, f"the change failed: {why!r}")
        done(result)

    def _happened(self, effect: effects.Happened) -> None:
        self._context.events.publish(effect.key, effect.headers, self._session.user)

    def _denied(self, effect: effects.Denied) -> None:
        operation = _CHANGES.get((effect.class_id, effect.method_id))
        if operation is not None:
            about: dict[str, object] = {"vhost": self._session.vhost}
            trail.note(self._context.node, self._by(), operation, about, "refused", effect.text)

    def _reply_to(self, effect: effects.ReplyTo) -> None:
        behind = self._context.send_reply(
            effect.node,
            effect.boot,
            effect.connection_id,
            effect.channel,
            effect.key,
            effect.message,
        )
        if behind is not None:  # of two such ways the last: the first is met again
            self._hold_back().queues[0] = behind

    def _close_connection(self, effect: effects.CloseConnection) -> None:
        self._client.fail(effect.error)

    # Any: the key is the type of the effect that a method takes; typing can't say so of a dict.
    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        effects.PublishTo: _publish,
        effects.QueueRequest: _request,
        effects.HasRoom: _has_room,
        effects.ChannelEnded: _end_channel,
        effects.Attach: _attach,
        effects.Stat: _stat,
        effects.DeleteQueue: _delete_queue,
        effects.Propose: _propose,
        effects.Happened: _happened,
        effects.Denied: _denied,
        effects.ReplyTo: _reply_to,
        effects.CloseConnection: _close_connection,
    }


def _is_set_active(effect: effects.Effect) -> bool:
    """True for what pauses or resumes a consumer: it waits for nothing."""
    return type(effect) is effects.QueueRequest and type(effect.command) is SetActive


def _nobody(result: object) -> None:
    """A declare with no-wait: nobody waits for the counts."""
    del result
