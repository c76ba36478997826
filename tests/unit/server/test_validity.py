"""Certificates that run out."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from broker.server.entrance.validity import running_out
from tests.certificates import Authority

DAY = dt.timedelta(days=1)


def test_what_ends_before_a_time_is_told_and_nothing_else(tmp_path: Path):
    authority = Authority(tmp_path, "authority")
    pair = authority.pair("server", days=(-1, 10), followed_by=authority)  # which has 30 days
    now = dt.datetime.now(dt.UTC)
    path = str(pair.certfile)
    assert running_out(path, now + 9 * DAY, now) == []
    (told,) = running_out(path, now + 11 * DAY, now)
    assert told.startswith(f"{now + 10 * DAY:%Y-%m-%d} ")
    assert len(running_out(path, now + 31 * DAY, now)) == 2
    assert running_out("", now + 31 * DAY, now) == []


def test_what_is_no_valid_certificate_is_told_whatever_the_time(tmp_path: Path):
    authority = Authority(tmp_path, "authority")
    now = dt.datetime.now(dt.UTC)
    early = authority.pair("early", days=(1, 30))
    assert running_out(str(early.certfile), now, now) == ["Certificate is not yet valid"]
    (told,) = running_out(str(early.keyfile), now, now)
    assert told == "The certificate file provided does not contain any PEM entry."
    (told,) = running_out(str(tmp_path / "none"), now, now)
    assert told == "The file can't be read: No such file or directory"
