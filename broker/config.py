"""Every setting of a node, typed, with its unit in its name and RabbitMQ's default.

Pure: nothing here reads a file, the environment or a clock; `broker.configuration.sources` does and
hands the result down. What bounds a queue, buffer, retry or wait of the shells is here too, so that
no module hides a limit. An empty host in a `Listener` means every interface.
"""

from __future__ import annotations

import msgspec

from broker.passwords import PasswordRule

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


class Listener(msgspec.Struct, frozen=True):
    """The address of a server socket.

    Attributes:
        host: Address or host name; "" is every interface.
        port: TCP port; 0 lets the system choose (tests).
    """

    host: str
    port: int


class Peer(msgspec.Struct, frozen=True):
    """Another node and where this node dials it.

    Attributes:
        node: Node name as users see it, "rabbit@node2".
        host: Host name or address of its inter-node listener.
        port: TCP port of its inter-node listener.
    """

    node: str
    host: str
    port: int


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS at a listener: `ssl_options.*`, `management.ssl.*` or `prometheus.ssl.*`.

    Attributes:
        certfile: Path of the node's certificate, PEM, followed by intermediate ones.
        keyfile: Path of its private key, PEM; "": it stands in `certfile`.
        password: Decrypts the key; "": it is not encrypted.
        cacertfile: Path of the certificates of authorities that sign clients' certificates.
        is_verified: `verify = verify_peer`: clients are asked for a certificate, and one that is
            given must be good.
        is_required: `fail_if_no_peer_cert`: clients without a certificate are refused.
        depth: Most intermediate certificates between a client's and an authority's; None: any.
        versions: Of "tlsv1.2" and "tlsv1.3".
        ciphers: OpenSSL's names of cipher suites of TLS 1.2, best first; empty: OpenSSL's choice.
        honor_cipher_order: The node's order of cipher suites counts, not the client's.
        crl_check: "peer": clients' certificates are looked up in `crlfile`; "true": those of the
            authorities between, too; "": none.
        crlfile: Path of the authorities' lists of revoked certificates (CRL), PEM.
    """

    certfile: str
    keyfile: str = ""
    password: str = ""
    cacertfile: str = ""
    is_verified: bool = False
    is_required: bool = False
    depth: int | None = None
    versions: tuple[str, ...] = ("tlsv1.3", "tlsv1.2")
    ciphers: tuple[str, ...] = ()
    honor_cipher_order: bool = True
    crl_check: str = ""
    crlfile: str = ""


class LinkTlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS between nodes: `cluster.tls.*`.

    Attributes:
        mode: "off", "optional" or "required"; "": what the cluster port's address asks for
            (`broker.cluster.authentication.link_tls.mode`).
        folder: What `warrenmq cluster certificates` made; each node's files are in a folder there
            that has the node's name.
        certfile: Path of this node's certificate, PEM, followed by intermediate ones; it and the
            next ones count instead of `folder`.
        keyfile: Path of its private key, PEM; "": it stands in `certfile`.
        password: Decrypts the key; "": it is not encrypted.
        cacertfile: Path of the certificates of authorities that sign nodes' certificates.
    """

    mode: str = ""
    folder: str = ""
    certfile: str = ""
    keyfile: str = ""
    password: str = ""
    cacertfile: str = ""


class ClientTlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS of this node as a client, which always checks the server's certificate.

    Attributes:
        cacertfile: Path of the certificates of authorities, PEM; "": the system's.
        certfile: Path of a certificate that this node shows, PEM; "": none.
        keyfile: Path of its private key, PEM; "": it stands in `certfile`.
        password: Decrypts the key; "": it is not encrypted.
    """

    cacertfile: str = ""
    certfile: str = ""
    keyfile: str = ""
    password: str = ""


class SyslogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A syslog server: `log.syslog.*`.

    Attributes:
        transport: "udp", "tcp" or "tls".
        protocol: "rfc3164" or "rfc5424".
        host: A name or an address; with TLS it is the one that the certificate must have.
        port: None is 514, with TLS 6514.
        identity: The program's name in messages.
        facility: Of `broker.logs.syslog_message.FACILITIES`.
        cacertfile: The authorities that may have signed the server's certificate, PEM; "": those of
            the machine.
        certfile: Our own certificate, PEM; "" for none.
        keyfile: Its key; "": it stands in `certfile`.
        is_verified: The server's certificate must be good.
    """

    transport: str = "udp"
    protocol: str = "rfc3164"
    host: str = "127.0.0.1"
    port: int | None = None
    identity: str = "warrenmq"
    facility: str = "daemon"
    cacertfile: str = ""
    certfile: str = ""
    keyfile: str = ""
    is_verified: bool = True


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The destinations of log records.

    Attributes:
        level: "debug", "info", "warning", "error" or "none"; of what has none of its own.
        categories: Levels of categories (`broker.logs.levels`).
        levels: Levels of outputs: "console", "file", "syslog", "exchange".
        formats: By output: "plain" lines or "json" objects.
        console: True writes to standard output.
        file: Path of the log file, None for none.
        rotation_size_bytes: The file is rotated when it would grow beyond; 0 never rotates.
        rotation_count: Old files kept.
        rotation_date: When it is rotated, too (`broker.logs.rotation_dates`); "": never for that.
        audit_file: Path of the audit log (`log.audit.file`, ours), None for none. It is rotated as
            the log file is.
        syslog: A syslog server, None for none.
        exchange: True publishes lines to amq.rabbitmq.log of the default vhost.
    """

    level: str = "info"
    categories: dict[str, str] = {}
    levels: dict[str, str] = {}
    formats: dict[str, str] = {}
    console: bool = True
    file: str | None = None
    rotation_size_bytes: int = 10 * MEBIBYTE
    rotation_count: int = 5
    rotation_date: str = ""
    audit_file: str | None = None
    syslog: SyslogSettings | None = None
    exchange: bool = False


class DefaultLimits(msgspec.Struct, frozen=True):
    """`default_limits.vhosts.ID.*`: limits that a new vhost gets; of several the first that fits.

    Attributes:
        name: ID, in whose order they are tried.
        pattern: Searched for in the vhost's name.
        limits: "max-connections" and "max-queues"; below 0 is without limit.
    """

    name: str
    pattern: str
    limits: dict[str, int]


class DefaultOperatorPolicy(msgspec.Struct, frozen=True):
    """`default_policies.operator.ID.*`: an operator policy that new vhosts get.

    Attributes:
        name: ID, the policy's name.
        vhost_pattern: Searched for in the vhost's name.
        queue_pattern: The policy's pattern.
        definition: The policy's definition.
    """

    name: str
    vhost_pattern: str
    queue_pattern: str
    definition: dict[str, object]


class DefaultUser(msgspec.Struct, frozen=True):
    """`default_users.NAME.*`: a user who gets permissions in new vhosts, and is made if missing.

    Attributes:
        name: NAME, the user's name.
        vhost_pattern: Searched for in the vhost's name.
        password: In clear; None: no login with a password is possible.
        permissions: Configure, write, read.
        tags: Of a user who is made.
    """

    name: str
    vhost_pattern: str
    password: str | None
    permissions: tuple[str, str, str]
    tags: tuple[str, ...]


class VhostDefaults(msgspec.Struct, frozen=True):
    """What a new vhost gets.

    Attributes:
        limits: Which limits.
        operator_policies: All that fit its name.
        users: Likewise.
    """

    limits: tuple[DefaultLimits, ...] = ()
    operator_policies: tuple[DefaultOperatorPolicy, ...] = ()
    users: tuple[DefaultUser, ...] = ()


class Origin(msgspec.Struct, frozen=True):
    """Where a configured value came from.

    Attributes:
        key: As it was written, "listeners.tcp.default".
        source: "rabbitmq.conf:12", "RABBITMQ_NODE_PORT" or "--set".
    """

    key: str
    source: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one node. RabbitMQ's key stands beside each that has one.

    Attributes:
        node_name: Name users see, always with an @. `node.name`, RABBITMQ_NODENAME.
        data_dir: Everything this node writes. `data_dir`, RABBITMQ_MNESIA_DIR.
        pid_file: Written once the node runs, None for none. RABBITMQ_PID_FILE.
        amqp_listeners: `listeners.tcp.*`; empty for `none`.
        amqp_tls_listeners: `listeners.ssl.*`; `listeners.ssl = none`: empty.
        amqp_tls: `ssl_options.*`; None where there is no certificate.
        tls_handshake_timeout_ms: `ssl_handshake_timeout`: how long a TLS handshake may take.
        certificate_login: `ssl_cert_login_from`: what of a client's certificate is the user name
            of the mechanism EXTERNAL: "distinguished_name", "common_name" or
            "subject_alternative_name".
        certificate_login_san_type: `ssl_cert_login_san_type`: "dns", "ip", "email" or "uri".
        certificate_login_san_index: `ssl_cert_login_san_index`: which of that type, from 0.
        proxy_protocol: Connections to AMQP ports begin with a header of the PROXY protocol.
        proxy_trusted: `proxy_protocol.trusted_proxies.N`: networks that may send one,
            "10.0.0.0/8"; empty: every address.
        management_listener: `management.tcp.*`; `management.tcp.port = none`, and where there is
            `management.ssl.*` alone: None.
        management_tls_listener: `management.ssl.ip` and `.port`; None: no HTTPS.
        management_tls: The other keys of `management.ssl.*`.
        management_connections_max: `management.tcp.max_connections`: most connections without TLS
            that are served at a time, None for unlimited.
        management_path_prefix: `management.path_prefix`, "" or "/prefix".
        management_session_timeout_min: `management.login_session_timeout`: minutes from a login at
            the page to its end.
        management_max_body_bytes: `management.http.max_body_size`: the largest request body.
        management_cors_origins: `management.cors.allow_origins.N`: origins such as
            "https://app.example:8443" whose pages may call the HTTP API; "*" is every origin.
        management_browse_masked: `management.browse.masked.N`: names of headers, properties and
            fields of bodies whose values nobody sees who browses messages.
        management_cors_max_age_s: `management.cors.max_age`: how long a browser may keep what
            a preflight request allowed.
        management_denies_operator_policies:
            `management.restrictions.operator_policy_changes.disabled`.
        management_denies_replica_operations:
            `management.restrictions.quorum_queue_replica_operations.disabled`: the HTTP API adds
            and removes no replicas of quorum queues.
        management_headers: `management.csp.policy`, `management.hsts.policy` and
            `management.headers.*`: (HTTP header, value) that replace the API's own.
        metrics_listener: `prometheus.tcp.*`; None switches it off.
        metrics_authentication: `prometheus.authentication.enabled`: metrics are for users with
            the tag "monitoring".
        metrics_tls_listener: `prometheus.ssl.ip` and `.port`; None: no HTTPS.
        metrics_per_object: `prometheus.return_per_object_metrics`: `/metrics` shows each object.
        metrics_queues_max: `prometheus.warrenmq_queues_max`: most queues with samples of their own
            in `/metrics`; 0: none.
        metrics_tls: The other keys of `prometheus.ssl.*`.
        cluster_listener: `cluster.listen`; default: the first AMQP port + 20000, as RabbitMQ's
            distribution port. See `inter_node_listener`.
        cluster_secret: `cluster.secret`, `cluster.secret_file`, RABBITMQ_ERLANG_COOKIE. Nodes of
            one cluster share it. "" only where there are no peers.
        cluster_tls: `cluster.tls.*`.
        cluster_peers: `cluster.peers.NODE` and `cluster_formation.classic_config.nodes.N`; nodes
            that form the cluster at first start. May contain this node itself.
        cluster_formation_timeout_ms: `cluster.formation_timeout`: how long a new cluster's clients
            wait for configured peers that are missing.
        cluster_name: `cluster_name`, None for the first node's name.
        cluster_partition_handling: Always "pause_minority": the others act as it, with a warning.
        cluster_disconnect_after_ms: Without the lease for this long, clients are closed (320).
        heartbeat_s: `heartbeat`; 0 switches heartbeats off.
        frame_max_bytes: `frame_max`, negotiated down by the client.
        initial_frame_max_bytes: `initial_frame_max`: the limit before connection.tune-ok.
        channel_max: `channel_max`; 0 is 65535.
        channel_max_per_node: `channel_max_per_node`, 0 for unlimited.
        consumer_max_per_channel: `consumer_max_per_channel`, None for unlimited.
        cluster_queue_limit: `cluster_queue_limit`: most queues of the cluster, None for unlimited.
        cluster_exchange_limit: `cluster_exchange_limit`: most exchanges of the cluster, those of
            each vhost from the start included; None for unlimited.
        vhost_max: `vhost_max`: most vhosts of the cluster, None for unlimited.
        connection_max: `connection_max`, None for unlimited.
        accept_max: `ranch_connection_max`: most clients of the AMQP ports that are accepted,
            further ones wait; None for unlimited.
        max_message_size_bytes: `max_message_size`: the largest body.
        handshake_timeout_ms: `handshake_timeout`.
        consumer_timeout_ms: `consumer_timeout`: how long a delivery may stay unacknowledged;
            None never closes.
        tcp_backlog: `tcp_listen_options.backlog`.
        events_vhost: `event_exchange.vhost`: where amq.rabbitmq.event is; None: in the default one.
        statistics_interval_ms: `collect_statistics_interval`: rates are those of so long.
        tcp_nodelay: `tcp_listen_options.nodelay`.
        tcp_keepalive: `tcp_listen_options.keepalive`.
        tcp_send_buffer_bytes: `tcp_listen_options.sndbuf`, None for the system's.
        tcp_receive_buffer_bytes: `tcp_listen_options.recbuf`, None for the system's.
        auth_mechanisms: `auth_mechanisms.N`, in the order offered.
        loopback_users: `loopback_users.NAME`: who may connect from this machine only.
        default_user: `default_user`, made at the first start of a cluster.
        default_password: `default_pass`.
        default_vhost: `default_vhost`.
        default_user_tags: `default_user_tags.TAG = true`.
        default_permissions: `default_permissions.configure|write|read`, in this order.
        vhost_defaults: `default_limits.vhosts.*`, `default_policies.operator.*` and
            `default_users.*`: what each new vhost gets, the first one included.
        definitions_paths: `load_definitions`, `definitions.local.path` and
            `management.load_definitions`: files, folders of *.json, and `definitions.https.url`,
            that are imported at each start, in this order. With one a new cluster gets neither
            default user nor vhost.
        definitions_tls: `definitions.tls.*`, for the URL.
        definitions_skip_if_unchanged: `definitions.skip_if_unchanged`: files that the last import
            was of are not imported again.
        definitions_hashing: `definitions.hashing.algorithm`: the hash they are known by.
        password_hashing: `password_hashing_module`, of new passwords:
            rabbit_password_hashing_sha256, _sha512, _md5, or
            warrenmq_password_hashing_scrypt, which RabbitMQ does not know.
        password_rule: `credential_validator.validation_backend`: "accept_everything",
            "min_password_length" or "password_regexp": which new passwords are accepted.
        password_length_min: `credential_validator.min_length`: bytes, for "min_password_length".
        password_regexp: `credential_validator.regexp`: searched for, for "password_regexp".
        default_queue_type: `default_queue_type`.
        classic_queue_default_version: `classic_queue.default_version`: 1 or 2, stored alike.
        queue_leader_locator: `queue_leader_locator` or `queue_master_locator`; "" is "client-local"
            for classic queues and spreads the leaders of quorum queues.
        quorum_initial_group_size: Replicas of a new quorum queue.
        quorum_target_group_size: `quorum_queue.continuous_membership_reconciliation.*`, as are the
            next five: `.target_group_size`: replicas that quorum queues are repaired to where
            neither arguments nor a policy say; None: `quorum_initial_group_size`.
        quorum_repair_enabled: `.enabled`: replicas that are missing are added.
        quorum_repair_auto_remove: `.auto_remove`: replicas of nodes that stay down are replaced.
        quorum_repair_replace_after_ms: `.replace_after`, ours: how long a node is down before.
        quorum_repair_interval_ms: `.interval`: how often queues are looked at when nothing changes.
        quorum_repair_trigger_interval_ms: `.trigger_interval`: how long after a change.
        quorum_global_qos: `compat.quorum_global_qos`: accept basic.qos(global) on quorum queues.
        vm_memory_high_watermark: `vm_memory_high_watermark.relative`: share of the memory.
        vm_memory_high_watermark_bytes: `.absolute`; wins over the share when not None.
        total_memory_available_bytes: `total_memory_available_override_value`; None measures.
        vm_memory_high_watermark_paging_ratio: Share of the watermark at which queues move messages
            out of memory, above 0 and below 1.
        disk_free_limit_bytes: `disk_free_limit.absolute`.
        disk_free_limit_relative: `disk_free_limit.relative`: times the memory; wins if not None.
        compat_product: `compat.product`: `product` in connection.start. Celery looks at it.
        compat_version: `compat.version`: `version` in connection.start.
        log: Where log records go.
        origins: Where the values came from that are not defaults, in order of precedence; read by
            `broker.configuration.effective`.
    """

    node_name: str = "rabbit@localhost"
    data_dir: str = "data"
    pid_file: str | None = None

    amqp_listeners: tuple[Listener, ...] = (Listener("", 5672),)
    amqp_tls_listeners: tuple[Listener, ...] = ()
    amqp_tls: TlsSettings | None = None
    tls_handshake_timeout_ms: int = 5_000
    certificate_login: str = "distinguished_name"
    certificate_login_san_type: str = "dns"
    certificate_login_san_index: int = 0
    proxy_protocol: bool = False
    proxy_trusted: tuple[str, ...] = ()
    management_listener: Listener | None = Listener("", 15672)
    management_tls_listener: Listener | None = None
    management_tls: TlsSettings | None = None
    management_connections_max: int | None = None
    management_path_prefix: str = ""
    management_session_timeout_min: int = 480
    management_max_body_bytes: int = 20_000_000
    management_cors_origins: tuple[str, ...] = ()
    management_browse_masked: tuple[str, ...] = ()
    management_cors_max_age_s: int = 1_800
    management_denies_operator_policies: bool = False
    management_denies_replica_operations: bool = False
    management_headers: tuple[tuple[str, str], ...] = ()
    metrics_listener: Listener | None = Listener("", 15692)
    metrics_authentication: bool = False
    metrics_tls_listener: Listener | None = None
    metrics_per_object: bool = False
    metrics_queues_max: int = 0
    metrics_tls: TlsSettings | None = None

    cluster_listener: Listener | None = None
    cluster_secret: str = ""
    cluster_tls: LinkTlsSettings = LinkTlsSettings()
    cluster_peers: tuple[Peer, ...] = ()
    cluster_formation_timeout_ms: int = 30_000
    cluster_name: str | None = None
    cluster_partition_handling: str = "pause_minority"
    cluster_disconnect_after_ms: int = 10_000

    heartbeat_s: int = 60
    frame_max_bytes: int = 131_072
    initial_frame_max_bytes: int = 4_096
    channel_max: int = 2_047
    channel_max_per_node: int = 0
    consumer_max_per_channel: int | None = None
    cluster_queue_limit: int | None = None
    cluster_exchange_limit: int | None = None
    vhost_max: int | None = None
    connection_max: int | None = None
    accept_max: int | None = None
    max_message_size_bytes: int = 134_217_728
    handshake_timeout_ms: int = 10_000
    consumer_timeout_ms: int | None = 1_800_000
    tcp_backlog: int = 128
    events_vhost: str | None = None
    statistics_interval_ms: int = 5_000
    tcp_nodelay: bool = True
    tcp_keepalive: bool = False
    tcp_send_buffer_bytes: int | None = None
    tcp_receive_buffer_bytes: int | None = None

    auth_mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    loopback_users: frozenset[str] = frozenset({"guest"})
    default_user: str = "guest"
    default_password: str = "guest"  # noqa: S105 - RabbitMQ's, from this machine only
    default_vhost: str = "/"
    default_user_tags: tuple[str, ...] = ("administrator",)
    default_permissions: tuple[str, str, str] = (".*", ".*", ".*")
    vhost_defaults: VhostDefaults = VhostDefaults()
    definitions_paths: tuple[str, ...] = ()
    definitions_tls: ClientTlsSettings = ClientTlsSettings()
    definitions_skip_if_unchanged: bool = False
    definitions_hashing: str = "sha256"
    password_hashing: str = "rabbit_password_hashing_sha256"  # noqa: S105 - an algorithm's name
    password_rule: str = "accept_everything"  # noqa: S105 - a rule's name
    password_length_min: int = 5
    password_regexp: str = ""

    default_queue_type: str = "classic"
    classic_queue_default_version: int = 1
    queue_leader_locator: str = ""
    quorum_initial_group_size: int = 3
    quorum_target_group_size: int | None = None
    quorum_repair_enabled: bool = True
    quorum_repair_auto_remove: bool = True
    quorum_repair_replace_after_ms: int = 600_000
    quorum_repair_interval_ms: int = 3_600_000
    quorum_repair_trigger_interval_ms: int = 10_000
    quorum_global_qos: bool = False

    vm_memory_high_watermark: float = 0.4
    vm_memory_high_watermark_bytes: int | None = None
    vm_memory_high_watermark_paging_ratio: float = 0.5
    total_memory_available_bytes: int | None = None
    disk_free_limit_bytes: int = 50_000_000
    disk_free_limit_relative: float | None = None

    compat_product: str = "RabbitMQ"
    compat_version: str = "3.13.7"
    log: LogSettings = LogSettings()
    origins: tuple[Origin, ...] = ()

    def password_policy(self) -> PasswordRule:
        """The rule for new passwords."""
        return PasswordRule(self.password_rule, self.password_length_min, self.password_regexp)

    def inter_node_listener(self) -> Listener:
        """Where other nodes reach this one: `cluster.listen`, or the first AMQP port + 20000."""
        if self.cluster_listener is not None:
            return self.cluster_listener
        if not self.amqp_listeners:
            return Listener("", 25672)
        first = self.amqp_listeners[0]
        return Listener(first.host, first.port + 20_000 if first.port else 0)

    def urls(self) -> list[str]:
        """Return where clients reach the node from this machine: AMQP first, then HTTP."""
        http, https = self.management_listener, self.management_tls_listener
        ports = [("amqp", each) for each in self.amqp_listeners]
        ports += [("amqps", each) for each in self.amqp_tls_listeners]
        ports += [(scheme, at) for scheme, at in (("http", http), ("https", https)) if at]
        found = [f"{scheme}://{_reachable(at.host)}:{at.port}" for scheme, at in ports]
        metrics = (("http", self.metrics_listener), ("https", self.metrics_tls_listener))
        return found + [_metrics_url(scheme, at) for scheme, at in metrics if at]

    def peer_address(self, node: str) -> tuple[str, int] | None:
        """The address configured for a node, None when there is none.

        Args:
            node: Node name, "rabbit@node2".
        """
        for peer in self.cluster_peers:
            if peer.node == node:
                return peer.host, peer.port
        return None


def _metrics_url(scheme: str, at: Listener) -> str:
    return f"{scheme}://{_reachable(at.host)}:{at.port}/metrics"


def _reachable(host: str) -> str:
    """Return a listener's host as a URL of this machine has it."""
    if host in {"", "0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        return "localhost"
    return f"[{host}]" if ":" in host else host


def full_node_name(name: str) -> str:
    """Complete a node's name: `node1` means `rabbit@node1`.

    Args:
        name: What the user wrote.
    """
    return name if "@" in name else f"rabbit@{name}"
