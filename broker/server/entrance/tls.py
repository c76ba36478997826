"""TLS at a port: from the socket to a connection that reads what clients sent encrypted.

    accepted   a place among strangers, or the socket is closed          `broker.doors.admission`
    its turn   of all strangers' steps                                   `broker.doors.turns`
    handshake  at most `ssl_handshake_timeout`                           the event loop's own TLS
    welcomed   the port's connection goes on in the handshake's place, and enters as one without TLS

What goes wrong before that is one line in the log, of each address one a second, and nobody else
notices. Connections that come through a port without TLS pass nothing of this.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import cache
from typing import Final, NamedTuple, Protocol, cast

from typing_extensions import override

from broker.config import Settings
from broker.doors.admission import Admission
from broker.doors.attempts import FailureLog
from broker.doors.certificates import PeerCertificate, peer_certificate
from broker.doors.proxy_header import Ends
from broker.doors.turns import Turns
from broker.server.entrance.certificates import Certificates
from broker.server.entrance.handshakes import Watch

_log = logging.getLogger(__name__)

SHUTDOWN_S: Final = 3.0
"""How long a client may take to answer the end of TLS (as long as a refusal lingers: GRACE_MS of
broker/amqp/connection.py)."""

EARLY_BYTES_MAX: Final = 1 << 16
"""Bytes that may come before the loop's TLS reads, and with the end of a handshake."""

_WHY: Final = {
    "WRONG_VERSION_NUMBER": "the client does not speak TLS: connect it with TLS, or to a port"
    " without",
    "HTTP_REQUEST": "the client speaks HTTP without TLS: use https://",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of TLS that the node accepts (versions)",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that the node accepts (ciphers), or none"
    " for the kind of key in keyfile",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the client accepts no signature of the kind of key"
    " in keyfile",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has sent no certificate: give it one, or set"
    " fail_if_no_peer_cert = false",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not know the authority of the node's certificate:"
    " give it that authority's",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept the node's certificate: look at"
    " its name and authority there",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the node's certificate: look at its"
    " name and authority there",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client takes the node's certificate for expired: renew"
    " certfile, or set the client's clock",
}
_NOT_TLS: Final = frozenset(
    ("UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "PACKET_LENGTH_TOO_LONG")
)
_EXPIRED, _NOT_YET, _SELF_SIGNED = 10, 9, (18, 19)
_UNKNOWN_AUTHORITY: Final = (2, 20, 21)
_REVOKED, _NO_LIST = 23, (3, 11, 12)


class TlsFacts(NamedTuple):
    """What a handshake settled, in RabbitMQ's words.

    Attributes:
        protocol: "tlsv1.3".
        key_exchange: "ecdhe_rsa"; "any" in TLS 1.3.
        cipher: "aes_256_gcm".
        hash: "aead", or the message authentication code's: "sha256".
        peer: The client's certificate, None without one.
    """

    protocol: str
    key_exchange: str
    cipher: str
    hash: str
    peer: PeerCertificate | None


class Host(Protocol):
    """Who serves clients behind a port with TLS."""

    def welcome(self, tls: TlsFacts, ends: Ends | None) -> asyncio.Protocol | None:
        """Return the connection of a client whose handshake is done; None: nobody is let in.

        Args:
            tls: What the handshake settled.
            ends: What a proxy says of the client; None: the socket's own ends count.
        """
        ...


class TlsPort:
    """The handshakes of one listener. A protocol factory for `create_server`.

    Args:
        certificates: The node's certificate, and what clients must prove.
        admission: The places of strangers at the listener.
        turns: Of strangers' steps.
        failures: Which failures have a line in the log.
        timeout_ms: How long a handshake may take.
        host: Gets the clients.

    Attributes:
        certificates: As given.
        strangers: Handshakes that are going on.
    """

    def __init__(
        self,
        certificates: Certificates,
        admission: Admission,
        turns: Turns,
        failures: FailureLog,
        timeout_ms: int,
        host: Host,
    ) -> None:
        self.certificates = certificates
        self.admission = admission
        self.turns = turns
        self.failures = failures
        self.timeout_s = timeout_ms / 1000
        self.host = host
        self.strangers: set[TlsHandshake] = set()

    def __call__(self) -> asyncio.Protocol:
        """Return what takes a socket that was accepted."""
        return TlsHandshake(self)

    def introduced(self, ends: Ends | None) -> asyncio.Protocol:
        """A `broker.server.entrance.proxies.Behind`."""
        return TlsHandshake(self, ends)

    def close(self) -> None:
        """Drop who is in a handshake."""
        for stranger in list(self.strangers):
            stranger.abort()


class TlsHandshake(asyncio.Protocol):
    """One client until its handshake is done. A `broker.doors.admission.Guest`."""

    def __init__(self, port: TlsPort, ends: Ends | None = None) -> None:
        self._port = port
        self._ends = ends
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._name = ""
        self._is_dropped = False  # by us: there is nothing to tell
        self._is_lost = False
        self._early: list[bytes] = []
        self._next: asyncio.Protocol | None = None
        self._task: asyncio.Task[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        own = transport.get_extra_info("sockname") or ("", 0)
        ends = self._ends or Ends(str(peer[0]), peer[1], str(own[0]), own[1])
        self._peer = ends.peer_host
        self._name = f"{ends.peer_host}:{ends.peer_port} -> {ends.host}:{ends.port}"
        port = self._port
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        if not port.admission.enter(self, self._peer, now_ms):
            self.abort()
            return
        port.strangers.add(self)
        port.turns.run(self._peer, self._begin)

    @override
    def data_received(self, data: bytes) -> None:
        """Keep what comes while there is no TLS yet, or no connection yet."""
        if self._next is not None:
            self._next.data_received(data)
        elif sum(map(len, self._early)) + len(data) <= EARLY_BYTES_MAX:
            self._early.append(data)
        else:
            self.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._leave()
        if self._next is not None:  # it was told of this one, which has been replaced since
            self._next.connection_lost(exc)

    def abort(self) -> None:
        """Drop the socket now."""
        self._is_dropped = True
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def _leave(self) -> None:
        self._port.strangers.discard(self)
        self._port.admission.leave(self)

    def _begin(self) -> None:
        if not self._is_dropped and not self._is_lost:
            self._task = asyncio.get_running_loop().create_task(self._shake_hands())

    async def _shake_hands(self) -> None:
        port, transport = self._port, self._transport
        if transport is None or transport.is_closing() or self._is_dropped or self._is_lost:
            self._leave()
            return
        transport.pause_reading()  # start_tls reads on
        watch = Watch(transport.get_extra_info("socket").fileno(), b"".join(self._early))
        self._early.clear()
        context = port.certificates.context
        context.expect(watch)
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=port.timeout_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:
            if not self._is_dropped:
                self._tell(why_failed(error, port.timeout_s), is_quiet=not watch.has_input)
            return
        except Exception:  # noqa: BLE001 - the outermost frame of a task
            if not self._is_dropped:  # else the loop's TLS stumbled over a socket that is gone
                _log.exception("tls.handshake_failed: %s", self._name)
            return
        finally:
            context.forget(watch)
            self._leave()
        is_over = self._is_dropped or self._is_lost
        if encrypted is None or encrypted.is_closing() or is_over:
            return
        self._welcome(encrypted)

    def _welcome(self, transport: asyncio.Transport) -> None:
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        settings = self._port.certificates.settings
        if settings.depth is not None and settings.is_verified and _depth(tls) > settings.depth:
            text = f"the chain of the client's certificate is longer than depth = {settings.depth}"
            self._tell(f"{text}: give it one of a nearer authority, or raise depth", is_quiet=False)
            transport.abort()
            return
        found = self._port.host.welcome(_facts(tls), self._ends)
        if found is None:
            transport.abort()
            return
        self._next = found
        transport.set_protocol(found)
        found.connection_made(transport)
        if self._early:
            found.data_received(b"".join(self._early))

    def _tell(self, why: str, *, is_quiet: bool) -> None:
        """One line; none for port scans and health checks, which say nothing at all."""
        if is_quiet:
            _log.debug("TLS handshake failed: %s: %s", self._name, why)
        elif self._port.failures.note(self._peer):
            _log.warning("TLS handshake failed: %s: %s", self._name, why)


def certified_name(tls: TlsFacts | None, settings: Settings) -> tuple[str, str]:
    """Return the user name of the mechanism EXTERNAL, or why there is none: one of both is "".

    Args:
        tls: The connection's.
        settings: The node's; they say where in a certificate the name stands.

    Source:
        rabbit_auth_mechanism_ssl.erl, init/1; rabbit_ssl.erl, peer_cert_auth_name/2.
    """
    if tls is None or tls.peer is None:
        return "", "connection peer presented no TLS (x.509) certificate"
    peer = tls.peer
    if settings.certificate_login == "common_name":
        name = peer.common_name
    elif settings.certificate_login == "subject_alternative_name":
        name = peer.alternative_name(
            settings.certificate_login_san_type, settings.certificate_login_san_index
        )
    else:
        name = peer.subject
    return name, "" if name else "no name found"


def why_failed(error: OSError, timeout_s: float) -> str:
    """Say why a handshake failed, and what to do.

    Args:
        error: What the event loop raised.
        timeout_s: How long a handshake may take.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _why_not_verified(error)
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if reason in _NOT_TLS:
            reason = "WRONG_VERSION_NUMBER"
        return _WHY.get(reason, f"{reason}: look at the client's TLS settings")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return f"not done within {timeout_s:g} s (ssl_handshake_timeout): look at the client's TLS"
    return "the client went away: its own log says why"


def _why_not_verified(error: ssl.SSLCertVerificationError) -> str:
    code, text = error.verify_code, error.verify_message
    if code == _EXPIRED:
        advice = "renew it"
    elif code == _NOT_YET:
        advice = "wait, or set the clocks"
    elif code in _SELF_SIGNED:
        advice = "have it signed by an authority of cacertfile, or add it there"
    elif code == _REVOKED:
        advice = "give the client another; crlfile lists this one"
    elif code in _NO_LIST:
        advice = "put a list of its authority that is in date into crlfile"
    elif code in _UNKNOWN_AUTHORITY:
        advice = "give the client one of an authority of cacertfile, or add its authority there"
    else:
        advice = "give the client another"
    return f"the client's certificate is not accepted ({text}): {advice}"


def _depth(tls: ssl.SSLObject) -> int:
    """Return the number of intermediate certificates in the client's chain.

    Python has the chain as a method of the object since 3.13, and before in the one below it.
    """
    has_chain = tls if hasattr(tls, "get_verified_chain") else getattr(tls, "_sslobj", None)
    chain: list[object] = getattr(has_chain, "get_verified_chain", list)()
    return max(0, len(chain or ()) - 2)


def _facts(tls: ssl.SSLObject) -> TlsFacts:
    decoded = tls.getpeercert()
    name = (tls.cipher() or ("",))[0]
    key_exchange, cipher, code = cipher_suites(is_all=True).get(name, ("", name, ""))
    return TlsFacts(
        (tls.version() or "").lower(),
        key_exchange,
        cipher,
        code,
        peer_certificate(decoded) if decoded else None,
    )


@cache
def cipher_suites(*, is_all: bool) -> dict[str, tuple[str, str, str]]:
    """Return (key exchange, cipher, hash) by OpenSSL's name of a cipher suite, in Erlang's words.

    Args:
        is_all: Not only those that are enabled by default.

    Source:
        ssl_cipher_format.erl of OTP, suite_bin_to_map/1.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if is_all:
        context.set_ciphers("ALL")
    found = {}
    for suite in context.get_ciphers():
        exchange = suite["kea"].removeprefix("kx-")
        signed = suite["auth"].removeprefix("auth-")
        is_named_once = exchange in ("any", signed)
        found[suite["name"]] = (
            exchange if is_named_once else f"{exchange}_{signed}",
            suite["symmetric"].replace("-", "_"),
            "aead" if suite["aead"] else suite["digest"] or "",
        )
    return found
