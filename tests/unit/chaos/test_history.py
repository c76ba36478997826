from __future__ import annotations

import pytest

from chaos import history
from chaos.checkers.verdict import judge
from tests.unit.chaos import forge

COLUMNS = (
    "run_id recorder event_no ts_us node op vhost exchange routing_key queue connection channel",
    "consumer_tag publisher seq msg_id delivery_tag redelivered stream_offset size body_crc code",
)


def test_columns_are_those_of_the_pipeline_and_three_more():
    extra = {"op_id", "type", "epoch"}
    assert set(history.Event.__struct_fields__) == {*" ".join(COLUMNS).split(), *extra}


def test_recorders_count_and_merge_orders_by_them(tmp_path):
    recording = history.Recording("run", tmp_path)
    late, early = recording.recorder("b"), recording.recorder("a")
    late.write("publish", "invoke", msg_id="p|1", op_id="p/1")
    early.write("load", "invoke")
    recording.epoch.number = 2
    late.write("confirm", "ok", msg_id="p|1", op_id="p/1")
    assert recording.confirmed_count() == 1
    merged = recording.merge()
    assert [(e.recorder, e.event_no, e.op) for e in merged] == [
        ("a", 1, "load"), ("b", 1, "publish"), ("b", 2, "confirm"),
    ]  # fmt: skip
    assert [e.epoch for e in merged] == [0, 0, 2]
    assert history.load(tmp_path / history.FILE) == merged
    assert not (tmp_path / "recorders").exists()


def test_saved_history_is_judged_alike(tmp_path):
    events = forge.clean()
    history.save(tmp_path / history.FILE, events)
    assert judge(history.load(tmp_path / history.FILE), forge.OPTIONS) == judge(
        events, forge.OPTIONS
    )


@pytest.mark.parametrize("line", ["{", '{"run_id":"x"}', "[]", '{"event_no":"one"}'])
def test_damaged_line_is_named(tmp_path, line):
    path = tmp_path / "h.ndjson"
    history.save(path, forge.clean()[:2])
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(history.HistoryError, match=r"h\.ndjson:3: "):
        history.load(path)


def test_missing_history_is_named(tmp_path):
    with pytest.raises(history.HistoryError, match="No such file"):
        history.load(tmp_path / "none.ndjson")
