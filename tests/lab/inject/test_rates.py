from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater_lab.inject.rates import Phase, RateProfile

RATES = st.sampled_from([0.0, 1.0, 7.5, 100.0, 2_500.0])
PHASES = st.builds(Phase, st.sampled_from([0.1, 1.0, 3.0, 10.0]), RATES, RATES)
PROFILES = st.lists(PHASES, min_size=1, max_size=5).map(lambda phases: RateProfile(tuple(phases)))


@given(PROFILES)
def test_records_come_in_order_and_as_often_as_the_rates_say(rates: RateProfile) -> None:
    arrivals_us = rates.arrivals_us(0, rates.records)
    assert len(arrivals_us) == rates.records
    assert np.all(np.diff(arrivals_us) >= 0)
    for share in (0.0, 0.3, 0.5, 1.0):
        until_s = rates.seconds * share
        expected = rates.mean_rate(0.0, until_s) * until_s if until_s else 0.0
        arrived = int(np.searchsorted(arrivals_us, until_s * 1e6, side="left"))
        assert abs(arrived - expected) <= 1.01


@given(PROFILES, st.data())
def test_any_stretch_is_made_by_itself(rates: RateProfile, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, rates.records))
    until = data.draw(st.integers(first, rates.records))
    whole = rates.arrivals_us(0, rates.records)
    assert rates.arrivals_us(first, until).tolist() == whole[first:until].tolist()


def test_a_pause_brings_nothing_and_a_ramp_ever_more() -> None:
    rates = RateProfile((Phase(1, 4, 4), Phase(10, 0, 0), Phase(2, 0, 4)))
    arrivals_us = rates.arrivals_us(0, rates.records).tolist()
    assert arrivals_us[:5] == [0, 250_000, 500_000, 750_000, 11_000_000]
    gaps = np.diff(arrivals_us[4:])
    assert np.all(np.diff(gaps) < 0)


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ((0, 1, 1), "seconds=0 cannot be"),
        ((1, -1, 1), "from=-1 cannot be: give records a second"),
        ((1, 1, float("nan")), "to=nan"),
    ],
)
def test_phases_that_cannot_be_are_refused(phase: tuple[float, float, float], said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        Phase(*phase)
