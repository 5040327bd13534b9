"""What every policy for the place of window state must do, and what each is for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DescriptionError
from slackwater.lateness.tier_policies import (
    Bootstrap,
    ByIngestionRate,
    BySize,
    Emergency,
    Idle,
    Standard,
    Together,
    default_tiering,
)
from slackwater.lateness.tiering import (
    HeldSlice,
    SliceId,
    StagingTime,
    TierDecision,
    TierPolicy,
    TierSnapshot,
    bucket_bytes,
    stays_in_memory,
)

MB = 1024 * 1024
POLICIES: list[TierPolicy] = [
    Standard(),
    Standard(small_bytes=0),
    Bootstrap(keep_share=0.2),
    Idle(idle_ms=1_000),
    BySize(),
    ByIngestionRate(keep_share=0.1),
    Emergency(),
    Emergency(keep_share=0.3),
    default_tiering(),
    Together((Idle(idle_ms=500), Bootstrap(), Emergency(keep_share=0.1))),
]


def held(
    start_ms: int,
    *,
    past: bool = False,
    unsaved: int = 0,
    copied: int = 0,
    unstaged: int = 0,
    idle_ms: float = 0.0,
    rate: float = 0.0,
    use_ms: float | None = None,
) -> HeldSlice:
    return HeldSlice(
        SliceId(1, start_ms),
        past=past,
        memory_bytes=unsaved + copied,
        unsaved_bytes=unsaved,
        unstaged_bytes=unstaged,
        idle_ms=idle_ms,
        bytes_per_s=rate,
        next_use_ms=use_ms,
    )


def snapshot(*slices: HeldSlice, budget: float = 100 * MB, now_ms: float = 0.0) -> TierSnapshot:
    return TierSnapshot(now_ms, budget, slices, StagingTime())


sizes = st.integers(0, 40 * MB)
slices = st.builds(
    held,
    st.integers(0, 1_000_000),
    past=st.booleans(),
    unsaved=sizes,
    copied=sizes,
    unstaged=sizes,
    idle_ms=st.floats(0, 1e6),
    rate=st.floats(0, 1e9),
    use_ms=st.none() | st.floats(0, 1e6),
)
snapshots = st.builds(
    TierSnapshot,
    st.floats(0, 1e6),
    st.floats(1, 200 * MB),
    st.lists(slices, max_size=12, unique_by=lambda one: one.id).map(tuple),
    st.just(StagingTime()),
)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@given(seen=snapshots)
def test_every_policy_asks_only_for_what_can_be_done(
    policy: TierPolicy, seen: TierSnapshot
) -> None:
    decision = policy.decide(seen)
    known = {one.id: one for one in seen.slices}
    leaving = [destaging.id for destaging in decision.destage]
    assert len(set(leaving)) == len(leaving)
    assert len(set(decision.prestage)) == len(decision.prestage)
    assert not set(leaving) & set(decision.prestage)
    for destaging in decision.destage:  # something is freed, and nothing is kept that is not there
        assert 0 <= destaging.keep_bytes < known[destaging.id].memory_bytes
    for id in decision.prestage:
        assert known[id].unstaged_bytes
    assert policy.decide(seen) == decision


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@given(seen=snapshots)
def test_every_policy_comes_to_rest(policy: TierPolicy, seen: TierSnapshot) -> None:
    """What it asks for leads, within a moment, to where it asks for nothing: no to and fro."""
    for _ in range(4):
        decision = policy.decide(seen)
        if not decision.destage and not decision.prestage:
            return
        seen = replace(seen, slices=tuple(done(one, decision) for one in seen.slices))
    raise AssertionError(f"still not content: {policy.decide(seen)}")


def done(one: HeldSlice, decision: TierDecision) -> HeldSlice:
    """Carry out what was decided of a slice."""
    kept = {destaging.id: destaging.keep_bytes for destaging in decision.destage}
    total = one.memory_bytes + one.unstaged_bytes
    if one.id in kept:
        rest = kept[one.id]
        return replace(one, memory_bytes=rest, unsaved_bytes=0, unstaged_bytes=total - rest)
    if one.id in decision.prestage:
        return replace(one, memory_bytes=total, unstaged_bytes=0)
    return one


def test_a_past_window_leaves_memory_and_an_open_one_stays() -> None:
    decision = Standard().decide(snapshot(held(1, past=True, unsaved=MB), held(2, unsaved=MB)))
    assert [destaging.id.start_ms for destaging in decision.destage] == [1]


def test_a_small_past_window_stays_while_there_is_room() -> None:
    small = held(1, past=True, unsaved=1_000)
    assert not Standard().decide(snapshot(small)).destage
    crowded = snapshot(small, held(2, unsaved=60 * MB))
    assert [destaging.id.start_ms for destaging in Standard().decide(crowded).destage] == [1]
    # A copy of what is on storage is given up whatever its size: that costs nothing.
    assert Standard().decide(snapshot(held(1, past=True, copied=1_000, unstaged=5))).destage


def test_the_bootstrap_keeps_a_share_of_the_whole_window() -> None:
    seen = snapshot(held(1, past=True, unsaved=4 * MB))
    (destaging,) = Bootstrap(keep_share=0.25).decide(seen).destage
    assert destaging.keep_bytes == MB


def test_an_idle_window_leaves_though_it_is_open() -> None:
    decision = Idle(idle_ms=1_000).decide(
        snapshot(held(1, unsaved=MB, idle_ms=999), held(2, unsaved=MB, idle_ms=1_000))
    )
    assert [destaging.id.start_ms for destaging in decision.destage] == [2]


def test_a_window_is_staged_just_early_enough() -> None:
    staging = StagingTime(fixed_ms=10.0, ms_per_byte=1e-5)
    size = 10 * MB
    ahead_ms = staging.duration_ms(size)
    one = held(1, past=True, unstaged=size, use_ms=1_000.0)
    early = TierSnapshot(999.0 - ahead_ms, 100 * MB, (one,), staging)
    in_time = TierSnapshot(1_000.0 - ahead_ms, 100 * MB, (one,), staging)
    assert not Standard().decide(early).prestage
    assert Standard().decide(in_time).prestage == (one.id,)


def test_what_is_staged_for_its_next_use_is_not_sent_away_before() -> None:
    staged = held(1, past=True, copied=10 * MB, use_ms=50.0)
    assert not Standard().decide(snapshot(staged, now_ms=0.0)).destage
    assert Standard().decide(snapshot(replace(staged, next_use_ms=None))).destage


def test_nothing_is_staged_that_would_press_others_out() -> None:
    wanted = held(1, past=True, unstaged=30 * MB, use_ms=0.0)
    assert Standard().decide(snapshot(wanted, held(2, unsaved=30 * MB))).prestage
    assert not Standard().decide(snapshot(wanted, held(2, unsaved=50 * MB))).prestage


def test_scarce_memory_is_freed_largest_first_until_enough_is() -> None:
    slices = [held(1, unsaved=10 * MB), held(2, unsaved=40 * MB), held(3, unsaved=25 * MB)]
    decision = BySize().decide(snapshot(*slices))
    assert [destaging.id.start_ms for destaging in decision.destage] == [2]
    assert not BySize().decide(snapshot(*slices, budget=200 * MB)).destage


def test_scarce_memory_is_freed_where_little_comes_in() -> None:
    slices = [
        held(1, unsaved=30 * MB, rate=9.0),
        held(2, unsaved=30 * MB, rate=1.0),
        held(3, unsaved=20 * MB, rate=5.0),
    ]
    decision = ByIngestionRate().decide(snapshot(*slices))
    assert [destaging.id.start_ms for destaging in decision.destage] == [2]


def test_in_an_emergency_everything_leaves_but_the_bootstrap() -> None:
    slices = [held(1, unsaved=60 * MB), held(2, past=True, copied=31 * MB)]
    decision = Emergency(keep_share=0.1).decide(snapshot(*slices))
    assert [(d.id.start_ms, d.keep_bytes) for d in decision.destage] == [
        (1, 6 * MB),
        (2, int(3.1 * MB)),
    ]
    assert not Emergency().decide(snapshot(held(1, unsaved=90 * MB))).destage


@given(seen=snapshots)
def test_after_an_emergency_a_tenth_is_free(seen: TierSnapshot) -> None:
    """The default policy leaves memory below nine tenths, however full it was."""
    kept = {d.id: d.keep_bytes for d in default_tiering().decide(seen).destage}
    used = sum(kept.get(one.id, one.memory_bytes) for one in seen.slices)
    assert used <= 0.9 * seen.budget_bytes


@given(st.integers(1, 100 * MB), st.floats(20.0, 10_000.0))
def test_staging_time_is_learned(size: int, took_ms: float) -> None:
    staging = StagingTime()
    for _ in range(60):
        staging = staging.after(size, took_ms=took_ms)
    assert staging.duration_ms(size) == pytest.approx(took_ms, rel=0.05)


def test_new_rows_stay_in_memory_until_the_bucket_or_the_budget_is_full() -> None:
    def stays(arriving: int, free: float, *, past: bool = False) -> bool:
        return stays_in_memory(
            arriving, bucket_held=50, bucket_bytes=100, free_bytes=free, past=past
        )

    assert stays(50, 1_000)
    assert not stays(51, 1_000)
    assert not stays(50, 49)
    assert not stays(1, 1_000, past=True)


def test_buckets_share_half_of_the_budget() -> None:
    assert bucket_bytes(100 * MB, 0) == 50 * MB
    assert bucket_bytes(100 * MB, 10) == 5 * MB
    assert bucket_bytes(100 * MB, 1_000) == MB


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Standard(keep_share=1.5), "keep_share"),
        (lambda: Idle(idle_ms=0), "idle_ms"),
        (lambda: BySize(above=0.4, below=0.6), "below"),
        (lambda: Emergency(free_share=-0.1), "free_share"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(make: object, field: str) -> None:
    with pytest.raises(DescriptionError, match=field):
        make()  # type: ignore[operator]
