"""Numbers and times as the page words them: the same as the broker does."""

from __future__ import annotations

import pytest

from broker.management.resources.diagnosis.words import lasting, per_second
from tests.page.browser import View

_CALL = """async ([name, value]) => {
    const app = document.querySelector("script[type=module]").src;
    return (await import(app.replace(/app\\.js$/, "format.js")))[name](value);
}"""


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("count", 48_210, "48,210"),
        ("rate", 0, "0"),
        ("rate", 9.94, "9.9"),
        ("rate", 415.4, "415"),
        ("bytes", 999, "999 bytes"),
        ("bytes", 999_600, "1.0 MB"),
        ("bytes", 47_000_000, "47 MB"),
        ("lasting", 192_000, "3 min 12 s"),
        ("lasting", 999, "999 ms"),
    ],
)
def test_numbers_have_separators_and_units(view: View, name: str, value: float, text: str) -> None:
    assert view.page.evaluate(_CALL, [name, value]) == text


def test_durations_and_rates_are_worded_as_the_broker_does(view: View) -> None:
    for ms in (0, 1, 1_000, 59_999, 60_000, 3_600_000, 3_660_000, 90_061_000, 864_000_000):
        assert view.page.evaluate(_CALL, ["lasting", ms]) == lasting(ms)
    for rate in (0.0, 0.3, 9.0, 10.0, 1234.0):
        assert view.page.evaluate(_CALL, ["rate", rate]) + "/s" == per_second(rate)
