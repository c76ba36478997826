"""What a query fails with; every text says what happened and what to do."""

from __future__ import annotations


class ConnectorError(Exception):
    """Any failure of the connector itself; never holds a password."""


class OptionRefused(ConnectorError):
    """An option is unknown, missing or out of bounds."""


class DataLost(ConnectorError):
    """Messages that the query has not read are gone."""

    advice = "option failOnDataLoss=false goes on without them"

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; {self.advice}")


class OffsetsRefused(ConnectorError):
    """Offsets of a checkpoint, or of an option, that do not fit the stream."""


class ReadFailed(ConnectorError):
    """No node serves a stream."""


class WriteFailed(ConnectorError):
    """Rows were not published, or it is not known whether they were."""
