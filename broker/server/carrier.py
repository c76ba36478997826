"""Executes a session's effects. Decides nothing: what a queue is asked goes to its handle."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from broker.errors import AmqpError, Refusal, ReplyCode
from broker.fifo.commands import Get, SetActive
from broker.metadata.commands import AnyCommand
from broker.ports import Done, GetResult
from broker.queues.handle import QueueHandle
from broker.server.channel_port import ChannelPort
from broker.server.context import ServerContext
from broker.server.throttle import Behind, Throttle
from broker.session import effects
from broker.session.session import Session

_log = logging.getLogger(__name__)

GOT_BYTES_MAX: Final = 1024 * 1024
"""What basic.get may bring a connection between two writes; one larger message comes alone."""


class Carrier:
    """Runs the effects of one session.

    Args:
        context: The node.
        session: Whose effects these are.
        wrote: Called after the session may have output.
        close: Called with a hard error that ends the connection.
        delivered: Called with about how many bytes were just delivered.
        throttle: Holds the connection back where queues are behind.

    Attributes:
        is_full: The client does not read: nothing more is got for it (`go_on`).
        got_bytes: What was got in this turn; the connection sets it back when that is written.
    """

    def __init__(
        self,
        context: ServerContext,
        session: Session,
        wrote: Callable[[], None],
        close: Callable[[AmqpError], None],
        delivered: Callable[[int], None],
        throttle: Throttle,
    ) -> None:
        self._context = context
        self._queues = context.queues
        self._session = session
        self._wrote = wrote
        self._close = close
        self._delivered = delivered
        self._throttle = throttle
        self._ports: dict[int, ChannelPort] = {}
        self._later: list[effects.Effect] = []  # of answers that came while a list is run
        self._is_running = False
        self._gets: list[effects.QueueRequest] = []  # of clients that don't read
        self._parked: dict[int, list[effects.Effect]] = {}  # by queue: it can't take them yet
        self._congested: dict[int, Behind] = {}  # by queue; at 0 the way of direct replies
        self._slowdown_us = 0
        self._held: set[int] = set()  # keys of channels that published to any of those
        self.is_full = False
        self.got_bytes = 0
        self._handlers: dict[type[effects.Effect], Callable[[Any], None]] = {
            effects.PublishTo: self._publish,
            effects.QueueRequest: self._request,
            effects.HasRoom: self._has_room,
            effects.ChannelEnded: self._end_channel,
            effects.Attach: self._attach,
            effects.Stat: self._stat,
            effects.DeleteQueue: self._delete_queue,
            effects.Propose: self._propose,
            effects.ReplyTo: self._reply_to,
            effects.CloseConnection: self._close_connection,
        }

    def run(self, asked: list[effects.Effect]) -> None:
        """Carry effects out, in order; what comes of one waits until all before it are done.

        An answer that comes at once may end the connection. Were its releases run in between, a
        consume later in the list would attach a consumer that nobody ever releases. To pause or
        resume consumers waits for nothing: else each queue in the list would serve a full socket.
        """
        if self._is_running:
            for effect in asked:
                if _is_set_active(effect):
                    self._handlers[type(effect)](effect)
                else:
                    self._later.append(effect)
            return
        handlers = self._handlers
        self._is_running = True
        try:
            while asked:
                for effect in asked:
                    if self._parked and self._is_behind_parked(effect):
                        continue
                    handlers[type(effect)](effect)
                asked, self._later = self._later, []
        finally:
            self._is_running = False
        if self._held or self._congested:
            queues, self._congested = self._congested, {}
            slowdown_us, self._slowdown_us = self._slowdown_us, 0
            channels, self._held = self._held, set()
            self._throttle.hold(queues, slowdown_us, channels, self._unpark)

    def _park(self, effect: effects.PublishTo, handle: QueueHandle) -> None:
        """Keep a publish until its queue, which is full of others', takes it (P12)."""
        uid = effect.queue.uid
        self._parked.setdefault(uid, []).append(effect)
        self._congested[uid] = handle
        self._held.add(effect.channel)

    def _is_behind_parked(self, effect: effects.Effect) -> bool:
        """True if an effect is for a queue with something parked, and goes behind it."""
        if _is_set_active(effect):
            return False
        queue = getattr(effect, "queue", None)
        uid = getattr(effect, "queue_uid", 0) if queue is None else queue.uid
        waiting = self._parked.get(uid)
        if waiting is None:
            return False
        waiting.append(effect)
        return True

    def _unpark(self, uid: int) -> None:
        """A queue has room again."""
        waiting = self._parked.pop(uid, None)
        if waiting is not None:
            self._run_and_write(waiting)

    def _run_and_write(self, asked: list[effects.Effect]) -> None:
        if asked:
            self.run(asked)
        self._wrote()

    def _port(self, channel: int) -> ChannelPort:
        port = self._ports.get(channel)
        if port is None:
            port = ChannelPort(
                self._session, channel, self._run_and_write, self._delivered, self._failed
            )
            self._ports[channel] = port
        return port

    def _failed(self) -> None:
        self._close(AmqpError(ReplyCode.INTERNAL_ERROR, "a bug in this broker; see its log"))

    def _completion(self, token: int) -> Callable[[object], None]:
        def done(result: object) -> None:
            if isinstance(result, GetResult) and result.delivery is not None:
                self.got_bytes += len(result.delivery.message.content)
            now_ms = self._context.clock.monotonic_ms()
            self._run_and_write(self._session.complete(token, result, now_ms))

        return done

    def _publish(self, effect: effects.PublishTo) -> None:
        handle = self._queues.open(effect.queue)
        if not handle.has_room(effect.messages):
            self._park(effect, handle)
            return
        handle.publish(effect.messages, effect.seqnos, self._port(effect.channel))
        if handle.is_congested:
            self._congested[effect.queue.uid] = handle
            self._held.add(effect.channel)
        slowdown_us = handle.slowdown_us
        if slowdown_us:
            self._slowdown_us += slowdown_us * len(effect.messages)
            self._held.add(effect.channel)

    def _request(self, effect: effects.QueueRequest) -> None:
        """Submit a command. A get waits for a client that has not read what it got before."""
        command = effect.command
        if type(command) is Get and (self.is_full or self.got_bytes > GOT_BYTES_MAX):
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
        for waiting in self._parked.values():
            if any(type(each) is effects.PublishTo and each.channel == channel for each in waiting):
                waiting.append(effect)  # they will have its port made again
        self._ports.pop(channel, None)
        self._gets = [
            each
            for each in self._gets
            if not (isinstance(each.command, Get) and each.command.holder == effect.holder)
        ]
        self._throttle.forget(channel)

    def _attach(self, effect: effects.Attach) -> None:
        handle = self._queues.open(effect.queue)
        handle.attach(effect.checkout, self._port(effect.channel), self._completion(effect.token))

    def end_consumers(
        self, ends: list[effects.QueueRequest], done: Callable[[object], None]
    ) -> None:
        """Cancel consumers of a session that ends.

        Args:
            ends: Their cancels.
            done: Called once for each.
        """
        for effect in ends:
            self._submit(effect, done)

    def go_on(self) -> None:
        """Run the gets that had to wait: those before them have been written."""
        self.got_bytes = 0
        if self._gets and not self.is_full:
            asked, self._gets = self._gets, []
            self._run_and_write(list(asked))

    def _stat(self, effect: effects.Stat) -> None:
        done = self._completion(effect.token) if effect.token else _nobody
        self._queues.open(effect.queue).stat(done, is_declare=effect.is_declare)

    def _delete_queue(self, effect: effects.DeleteQueue) -> None:
        self._queues.delete(
            effect.queue,
            self._completion(effect.token),
            if_unused=effect.if_unused,
            if_empty=effect.if_empty,
        )

    def _propose(self, effect: effects.Propose) -> None:
        self._context.spawn(self._ask(effect.command, self._completion(effect.token)))

    async def _ask(self, command: AnyCommand, done: Callable[[object], None]) -> None:
        try:
            result = await self._context.metadata.propose(command)
        except Exception as why:  # noqa: BLE001 - else the channel would wait for ever
            _log.exception("proposal.failed")
            result = Refusal(ReplyCode.INTERNAL_ERROR, f"the change failed: {why!r}")
        done(result)

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
            self._congested[0] = behind

    def _close_connection(self, effect: effects.CloseConnection) -> None:
        self._close(effect.error)


def _is_set_active(effect: effects.Effect) -> bool:
    """True for what pauses or resumes a consumer: it waits for nothing."""
    return type(effect) is effects.QueueRequest and type(effect.command) is SetActive


def _nobody(result: object) -> None:
    """A declare with no-wait: nobody waits for the counts."""
    del result
