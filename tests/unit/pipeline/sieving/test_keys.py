"""Two messages never share a key; what has none is odd."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sieving import keys
from pipeline.sieving.keys import Names

PLAIN = st.builds(
    lambda head, seq: f"{head}|{seq}", st.text(max_size=5), st.integers(0, 10**12 - 1)
)
NEARLY = st.builds("".join, st.lists(st.sampled_from("0123|/p-+ .٣é"), max_size=8))


def keyed(ids, heads=None):
    return keys.keys_of(pa.array(ids, pa.string()), heads or keys.publishers()).to_pylist()


@given(st.lists(st.one_of(PLAIN, NEARLY, st.text()), max_size=30))
def test_a_key_says_which_message_it_is(ids):
    heads = keys.publishers()
    found = keyed(ids, heads)
    names = heads.all()
    for each, key in zip(ids, found, strict=True):
        if key is not None:
            head = names[keys.head_of(pa.array([key]))[0].as_py()]
            assert f"{head}|{keys.seq_of(pa.array([key]))[0].as_py()}" == each
    assert keyed(ids, heads) == found


@given(st.lists(PLAIN, max_size=10))
def test_what_clients_write_is_never_odd(ids):
    assert None not in keyed(ids)


@pytest.mark.parametrize(
    "odd",
    ["", "|", "p1.1", "p1.1|", "p1.1|05", "p1.1|-5", "p1.1|+5", "p1.1|5 ", "p1.1|٣", "p1.1/5",
     "p1.1|1000000000000", "p1.1|5|"],
)  # fmt: skip
def test_an_odd_message_has_no_key(odd):
    assert keyed(["p1.1|5", odd, "p1.1|0"])[1] is None


def test_publishers_beyond_those_that_have_a_code_are_odd_for_ever():
    heads = Names(most=2)
    assert None not in keyed(["a|1", "b|1"], heads)
    assert keyed(["c|1", "a|1", "c|2"], heads)[::2] == [None, None]
    assert heads.all() == ["a", "b"]
