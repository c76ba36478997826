"""When a log begins a new file by date: `log.file.rotation.date`. Pure.

    $D0         every day at midnight          $D23H30   every day at 23:30
    $W0D23      every Sunday at 23 o'clock     $H0       every hour
    $M1D0       on the first of each month     $MLD0     on the last day of each month

Times are local ones, of the machine's time zone.

Source: parse_date_spec of rabbit_logger_std_h.erl; newsyslog.conf(5).
"""

from __future__ import annotations

import calendar
import re
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple

_SPEC: Final = re.compile(
    r"\$(?:W(?P<weekday>[0-6])|M(?P<month_day>\d{1,2}|L))?(?:D(?P<hour>\d{1,2}))?(?:H(?P<minute>\d{1,2}))?"
)
_LAST: Final = 31
_HOUR_MAX: Final = 23
_MINUTE_MAX: Final = 59
_DAYS_MAX: Final = 62


class RotationDate(NamedTuple):
    """When to rotate.

    Attributes:
        hour: Of the day; None: every hour.
        minute: Of the hour.
        weekday: 0 is Sunday; None: any.
        month_day: From 1; the last one where a month has fewer. None: any.
    """

    hour: int | None
    minute: int = 0
    weekday: int | None = None
    month_day: int | None = None

    def next_after(self, moment: datetime) -> datetime:
        """Return when the next file begins.

        Args:
            moment: A local time, without a zone.
        """
        if self.hour is None:
            due = moment.replace(minute=self.minute, second=0, microsecond=0)
            return due if due > moment else due + timedelta(hours=1)
        at = time(self.hour, self.minute)
        for days in range(_DAYS_MAX):
            day = moment.date() + timedelta(days=days)
            last = calendar.monthrange(day.year, day.month)[1]
            is_weekday = self.weekday in (None, day.isoweekday() % 7)
            is_month_day = self.month_day is None or day.day == min(self.month_day, last)
            due = datetime.combine(day, at)
            if is_weekday and is_month_day and due > moment:
                return due
        raise AssertionError("every month has such a day")


def parse(text: str) -> RotationDate:
    """Read a setting.

    Args:
        text: "$D0".

    Raises:
        ValueError: It is none.
    """
    found = _SPEC.fullmatch(text)
    if found is not None and text != "$":
        weekday, month_day, hour, minute = found.group("weekday", "month_day", "hour", "minute")
        if hour is None and (weekday or month_day):
            hour = "0"
        rule = RotationDate(
            None if hour is None else int(hour),
            int(minute or 0),
            None if weekday is None else int(weekday),
            None if month_day is None else _LAST if month_day == "L" else int(month_day),
        )
        if _is_date(rule):
            return rule
    raise ValueError("a date such as $D0, $W0D23, $M1D0 or $H0")


def _is_date(rule: RotationDate) -> bool:
    is_hour = rule.hour is None or rule.hour <= _HOUR_MAX
    is_day = rule.month_day is None or 1 <= rule.month_day <= _LAST
    return is_hour and is_day and rule.minute <= _MINUTE_MAX
