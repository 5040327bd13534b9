"""Durations are exact, however they are written."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.app.durations import to_ms
from slackwater.errors import DescriptionError

milliseconds = st.integers(1, 10**12)


@given(milliseconds)
def test_every_whole_millisecond_can_be_a_timedelta(ms: int) -> None:
    assert to_ms(timedelta(milliseconds=ms), "size") == ms


@given(milliseconds)
def test_every_whole_millisecond_can_be_written_as_a_fraction(ms: int) -> None:
    assert to_ms(f"{ms // 1_000}.{ms % 1_000:03d} s", "size") == ms


@pytest.mark.parametrize("value", [timedelta(microseconds=1_500), "0.0005 s"])
def test_fractions_of_a_millisecond_are_refused(value: timedelta | str) -> None:
    with pytest.raises(DescriptionError, match="finer than a millisecond"):
        to_ms(value, "size")
