"""All jobs and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pipeline.audit import STARTING
from pipeline.command.configuration import Job, Setting

BROKER: Final = (
    Setting("url", "AMQP URLs of the nodes, with commas; no password", default="amqp://localhost"),
    Setting("http_url", "URLs of the HTTP API, with commas"),
    Setting("user", "who logs in"),
    Setting("password_env", "name of the environment variable with the password"),
    Setting("password_file", "file with the password"),
    Setting("mechanism", "how to log in", choices=("PLAIN", "EXTERNAL")),
    Setting("cacertfile", "whom to trust, with TLS"),
    Setting("certfile", "our certificate"),
    Setting("keyfile", "the key of our certificate"),
    Setting("timeout_s", "seconds without progress until the job fails", "number", 60, low=1),
)  # fmt: skip

REPORT: Final = (Setting("report", "write the report there, one HTML file"),)
SPARK: Final = (
    Setting("master", "Spark's master, as spark://HOST:7077; this machine without it"),
    Setting("spark", "a setting of Spark's as KEY=VALUE; may be repeated", "texts"),
)  # fmt: skip
COMMON: Final = (*REPORT, *SPARK)

LAKE: Final = Setting("lake", "folder of the lake", is_needed=True)
READ: Final = (
    Setting("tap", "the tap: queue/NAME or exchange/NAME"),
    Setting("stream", "or a stream"),
    Setting("super_stream", "or a super stream; needs http_url"),
    Setting("starting_offsets", "where a new run begins: first, next, N, a time", default="first"),
    Setting("max_rows", "rows of a batch at most; 0 for all", "number", 500_000),
    Setting("consumer_name", "store how far it is in the broker under this name; needs http_url"),
    Setting("data_loss", "if messages are gone unread", default="fail", choices=("fail", "go-on")),
    Setting("once", "read what there is now, then end", "flag", default=False),
    Setting("every_s", "seconds from one batch to the next", "number", 10, low=1),
)  # fmt: skip
SOURCES: Final = ("tap", "stream", "super_stream")
FILES: Final = (
    Setting("compact_files", "join files of a folder if so many are small; 0 never", "number", 16),
    Setting("file_mib", "MiB of a file, about; smaller ones are joined", "number", 128, low=1),
    Setting("keep_s", "seconds that joined files stay for readers", "number", 3600),
)  # fmt: skip

_INGEST: Final = Job(
    "ingest",
    "a tap or stream to Parquet, for ever, each message once",
    (
        LAKE, *READ, *BROKER, *FILES,
        Setting("date_of", "the day of a row", default="arrival", choices=("arrival", "message")),
        Setting("tables", "tables that are made of the messages", "tables"),
        *COMMON,
    ),
    "pipeline.jobs.ingest",
    SOURCES,
    never_ends=True,
)  # fmt: skip
_COMPACT: Final = Job(
    "compact",
    "join the small files of a lake, while it is read and written",
    (LAKE, *FILES, *COMMON),
    "pipeline.jobs.compact",
)
_FLOW: Final = Job(
    "flow",
    "which queues are hot, grow, and reach their limits when",
    (
        *(replace(s, is_needed=True) if s.name == "http_url" else s for s in BROKER),
        Setting("samples", "how many times the queues are looked at", "number", 30, low=2),
        Setting("every_s", "seconds from one look to the next", "number", 10, low=1),
        Setting("lake", "keep the samples in this lake, and judge those of earlier runs too"),
        Setting("hours_back", "with lake: samples so old count", "number", 24, low=1),
        Setting("full_in_h", "a queue that is full so soon is a finding", "number", 24),
        *COMMON,
    ),
    "pipeline.jobs.flow",
)  # fmt: skip

_LIFECYCLE: Final = Job(
    "lifecycle",
    "how long messages take from publish to ack, and where one of them went",
    (
        Setting("tap", "the tap of the trace: exchange/amq.rabbitmq.trace"),
        Setting("stream", "or a stream that is bound to amq.rabbitmq.trace"),
        Setting("lake", "or a lake that has the trace in its table messages"),
        *(s for s in READ if s.name in ("starting_offsets", "data_loss")),
        Setting("message", "tell the path of the message with this id"),
        Setting("id_of", "message_id, correlation_id, or a header's name", default="message_id"),
        Setting("slow_ms", "a queue with a higher p99 is a finding; 0 for none", "number", 0),
        Setting("out", "write a row for each message and queue there, Parquet"),
        *BROKER, *COMMON,
    ),
    "pipeline.jobs.lifecycle.job",
    ("tap", "stream", "lake"),
)  # fmt: skip

_SENDING: Final = (
    Setting("rate", "rows a second, on the average; 0 for as fast as it goes", "number", 0),
    Setting("yes", "send; without it, only show what would be sent", "flag", default=False),
)
_DEAD_LETTERS: Final = Job(
    "dead_letters",
    "why messages die: a tap of a dead-letter queue into a table",
    (LAKE, *READ, *BROKER, *FILES, *COMMON),
    "pipeline.jobs.dead_letters",
    SOURCES,
    never_ends=True,
)
_REDRIVE: Final = Job(
    "redrive",
    "send dead letters back to where they were published",
    (
        LAKE,
        Setting("where", "which of them, a condition in SQL", is_needed=True),
        Setting("again", "those as well that were sent back before", "flag", default=False),
        *_SENDING, *BROKER, *COMMON,
    ),
    "pipeline.jobs.redrive",
)  # fmt: skip
_REPLAY: Final = Job(
    "replay",
    "send messages of a lake to an exchange, a queue or a stream",
    (
        LAKE,
        Setting("begin", "from this time on: 2026-11-24 or 2026-11-24T18:00:00Z"),
        Setting("end", "before this time"),
        Setting("time_of", "whose time", default="arrival", choices=("arrival", "message")),
        Setting("where", "which of them, a condition in SQL"),
        Setting("to_exchange", "send to this exchange, with their own routing keys"),
        Setting("routing_key", "with this one instead"),
        Setting("to_queue", "or to this queue"),
        Setting("to_stream", "or to this stream"),
        *_SENDING, *BROKER, *COMMON,
    ),
    "pipeline.jobs.replay",
    ("to_exchange", "to_queue", "to_stream"),
)  # fmt: skip

_AUDIT: Final = Job(
    "audit",
    "histories of chaos runs, judged: which promises were kept",
    (
        Setting(
            "runs", "directories of chaos runs: store/NAME", "texts",
            is_needed=True, is_argument=True,
        ),
        Setting(
            "format", "what is read; Parquet is made beside the history when it is first asked for",
            default="ndjson", choices=("ndjson", "parquet"),
        ),
        *COMMON,
    ),
    "pipeline.jobs.audit",
    starting=STARTING,
)  # fmt: skip

JOBS: Final[Mapping[str, Job]] = {
    job.name: job
    for job in (_INGEST, _COMPACT, _DEAD_LETTERS, _REDRIVE, _REPLAY, _FLOW, _LIFECYCLE, _AUDIT)
}
