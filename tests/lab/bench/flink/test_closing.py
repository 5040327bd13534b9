import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.progress.arrivals import Arrivals, stream_salt
from slackwater.progress.distributions import NAMED_DELAYS, ConstantDelay
from slackwater_lab.bench.flink.closing import BoundedStream


def stream(delay: str, lag_ms: int, gap_us: float = 1_000.0, start_ms: int = 500) -> BoundedStream:
    arrivals = Arrivals(salt=stream_salt(3, 0), start_us=start_ms * 1_000, gap_us=gap_us)
    return BoundedStream(arrivals, NAMED_DELAYS[delay], lag_ms)


def test_without_delay_a_window_closes_with_the_first_event_after_its_end_and_the_lag() -> None:
    #  events, every 250 ms   ... 2750  3000  3250 ...
    #  window end 2900, lag 50:      2950 ^
    assert stream("none", 50, gap_us=250_000.0).closing_arrival_ms(2_900) == 3_000


def test_an_event_in_the_window_ends_last_millisecond_does_not_close_it() -> None:
    assert stream("none", 0).closing_arrival_ms(3_000) == 3_000
    late = BoundedStream(Arrivals(1, 0, 1_000.0), ConstantDelay(0.5), 0)
    assert late.event_ms(3_000, 2).tolist() == [2_999, 3_000]
    assert late.closing_arrival_ms(3_000) == 3_001


@given(
    delay=st.sampled_from(sorted(NAMED_DELAYS)),
    lag_ms=st.integers(0, 1_500),
    gap_us=st.sampled_from([100.0, 333.3, 20_000.0]),
    end_ms=st.integers(600, 6_000),
)
def test_the_closing_event_is_the_first_that_lets_the_watermark_pass(
    delay: str, lag_ms: int, gap_us: float, end_ms: int
) -> None:
    it = stream(delay, lag_ms, gap_us)
    arrived = it.arrivals.arrived(it.closing_arrival_ms(end_ms))
    times = it.event_ms(0, arrived)
    # Flink's watermark is the latest time less the lag less one; a window's last moment is end - 1.
    passed = times - lag_ms - 1 >= end_ms - 1
    first = int(np.argmax(passed))
    assert passed[first]
    assert it.arrivals.arrival_ms(first) == it.closing_arrival_ms(end_ms)


def test_a_later_window_never_closes_earlier() -> None:
    it = stream("exp", 300)
    closings = [it.closing_arrival_ms(end_ms) for end_ms in range(1_000, 9_000, 37)]
    assert closings == sorted(closings)


def test_times_are_those_of_the_generator() -> None:
    it = stream("uniform", 0)
    times = it.event_ms(10, 1_000)
    assert times.tolist() == it.event_ms(0, 1_010).tolist()[10:]
    delays = 500 + np.arange(10, 1_010) - times
    assert (delays.min(), delays.max()) == pytest.approx((0, 500), abs=5)
