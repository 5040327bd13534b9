"""Transforms composed at random: equal to one Spark batch, or refused with a reason.

Each composition is deployed for three tenants, whose records arrive a few at a time and share
prepared steps. Of all windows the last panes must be what plain Spark makes of each tenant's events
alone. `--hypothesis-profile=explore` composes others, and more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, currently_in_test_context, event, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.fuzz.batches import in_batch, interpreted, planned
from tests.fuzz.compositions import Composition, Plan, composed, simpler
from tests.fuzz.events import COLUMNS, SETS
from tests.fuzz.operations import ARBITRARY, STATEFUL, STATELESS, Operation
from tests.fuzz.outcomes import Outcome, difference
from tests.fuzz.streams import in_steps

pytestmark = pytest.mark.spark

TOGETHER = 8  # compositions that share a runtime: starting one for each would take longer
FEW = 3  # functions that do: these take a job for each window


@pytest.fixture(autouse=True)
def _room_for_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    spark.sparkContext.setCheckpointDir(str(tmp_path))


def some_composition(chance: Random, *kinds: Sequence[Operation], applied: bool) -> Composition:
    program = [chance.choice(chance.choice(kinds)) for _ in range(chance.randint(1, 4))]
    further = chance.sample(sorted(COLUMNS), chance.randint(2, 4))
    return composed(
        program,
        further,
        events=chance.randrange(SETS),
        slide_s=4 if applied else chance.choice([4, 2]),
        keys=0 if applied else chance.randrange(3),
        salt=chance.randrange(20),
        applied=applied,
    )


@st.composite
def transforms(draw: st.DrawFn) -> list[Composition]:
    """Draw a group from one seed: hypothesis would rather draw what is short."""
    chance = draw(st.randoms(use_true_random=True))
    kinds = [STATELESS] * 12 + [STATEFUL, ARBITRARY]
    return [some_composition(chance, *kinds, applied=False) for _ in range(TOGETHER)]


@st.composite
def functions(draw: st.DrawFn) -> list[Composition]:
    """Draw a group of functions over a window's rows, where all is allowed but chance."""
    chance = draw(st.randoms(use_true_random=True))
    return [some_composition(chance, STATELESS, STATEFUL, applied=True) for _ in range(TOGETHER)]


def judged(spark: SparkSession, group: Sequence[Composition]) -> list[tuple[Outcome, str]]:
    """Run compositions together; return what became of each and what is wrong with it."""
    plans = [Plan() if each.applied else planned(spark, each) for each in group]
    found = []
    for composition, plan, ours in zip(group, plans, in_steps(spark, group, plans), strict=True):
        expected = ours.refused is not None and not composition.stateless
        true = Outcome() if expected else in_batch(spark, composition, plan)
        found.append((ours, difference(composition, plan, ours, true)))
    spark.catalog.clearCache()
    return found


def wrong(spark: SparkSession, composition: Composition) -> str:
    """Say what is wrong with a composition run by itself."""
    return judged(spark, [composition])[0][1]


def least(spark: SparkSession, composition: Composition, found: str) -> tuple[Composition, str]:
    """Take away from a wrong composition what it is wrong without."""
    for less in simpler(composition):
        if still := wrong(spark, less):
            return least(spark, less, still)
    return composition, found


def check(spark: SparkSession, group: Sequence[Composition], tally: Counter[str]) -> None:
    """Hold a group to its batches; where one differs, show the least program that does."""
    for composition, (ours, found) in zip(group, judged(spark, group), strict=True):
        if found:
            if alone := wrong(spark, composition):
                composition, found = least(spark, composition, alone)
            else:
                found = f"{found} (but not by itself)"
            pytest.fail(f"{composition!r}\n{found}")
        kind = "refused" if ours.refused else "rebuilt" if ours.rebuilt else "prepared"
        tally.update([kind, "all"])
        if currently_in_test_context():
            event(kind)


def checked(
    spark: SparkSession,
    strategy: st.SearchStrategy[list[Composition]],
    groups: int,
) -> Counter[str]:
    """Check so many groups of compositions, every fourth of them with generated code."""
    tally: Counter[str] = Counter()
    profile = settings.get_profile(settings.get_current_profile_name())
    if not profile.derandomize:
        groups = max(groups, profile.max_examples // TOGETHER)

    # Groups are not shrunk: `least` does it, by whole operations, and of one composition only.
    @settings(
        max_examples=groups,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
    )
    @given(group=strategy)
    def run(group: list[Composition]) -> None:
        tally["groups"] += 1
        if tally["groups"] % 4 == 0:
            return check(spark, group, tally)
        with interpreted(spark):
            return check(spark, group, tally)

    run()
    return tally


def test_composed_transforms_equal_one_batch_or_are_refused(spark: SparkSession) -> None:
    assert checked(spark, transforms(), 1)["all"] >= TOGETHER


def test_composed_functions_of_a_window_equal_one_batch(spark: SparkSession) -> None:
    assert checked(spark, functions(), 1)["all"] >= FEW


@pytest.mark.slow
def test_many_more_composed_transforms_equal_one_batch_or_are_refused(spark: SparkSession) -> None:
    tally = checked(spark, transforms(), 40)
    assert tally["all"] >= 320
    assert tally["prepared"] >= 60  # or little was tried of what is fast, and so dangerous
    assert tally["rebuilt"] >= 60


@pytest.mark.slow
@pytest.mark.skipif(
    settings.get_current_profile_name() != "explore",
    reason="takes ten minutes: --hypothesis-profile=explore runs it",
)
@pytest.mark.parametrize("kind", ["stateless", "stateful"])
def test_each_operation_by_itself_equals_one_batch_or_is_refused(
    spark: SparkSession, kind: str
) -> None:
    operations = STATELESS if kind == "stateless" else [*STATEFUL, *ARBITRARY]
    found = [composed([each], ("k", "n", "v"), keys=1) for each in operations]
    tally: Counter[str] = Counter()
    with interpreted(spark):
        for first in range(0, len(found), TOGETHER):
            check(spark, found[first : first + TOGETHER], tally)
    assert tally["all"] == len(operations)
