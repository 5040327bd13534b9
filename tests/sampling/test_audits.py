"""Audits: bounds that hold too seldom are doubted, beyond chance and until they hold again."""

from __future__ import annotations

import random

from slackwater.sampling.audits import Audits, audited


def after(audits: Audits, outcomes: list[bool], results: int = 1) -> Audits:
    """Audit windows that held or not, in all of their results at once."""
    early = {str(number): (100.0, 95.0, 105.0) for number in range(results)}
    for held in outcomes:
        truth = dict.fromkeys(early, 101.0 if held else 120.0)
        audits = audited(audits, early, truth, missing=0.0, relative=0.05, confidence=0.95)
    return audits


def test_bounds_that_held_in_21_of_28_windows_are_doubted() -> None:
    outcomes = [number % 4 > 0 for number in range(28)]
    assert sum(outcomes) == 21
    assert after(Audits(), outcomes).doubted
    assert not after(Audits(), [True] * 28).doubted


def test_one_window_is_no_reason_to_doubt_however_many_results_it_has() -> None:
    assert not after(Audits(), [True] * 5 + [False] + [True] * 5, results=40).doubted
    assert after(Audits(), [number % 4 > 0 for number in range(28)], results=40).doubted


def test_each_result_of_a_window_has_its_turn() -> None:
    early = {"n": (100.0, 95.0, 105.0), "total": (100.0, 95.0, 105.0)}
    audits = Audits()
    for _ in range(20):
        truth = {"n": 100.0, "total": 300.0}  # half of what is promised never holds
        audits = audited(audits, early, truth, missing=0.0, relative=0.05, confidence=0.95)
    assert audits.doubted


def test_two_misses_are_no_reason_to_doubt() -> None:
    assert not after(Audits(), [True] * 10 + [False] + [True] * 10 + [False]).doubted


def test_doubt_ends_only_after_as_few_misses_as_were_promised() -> None:
    doubted = after(Audits(), [False] * 2)
    assert doubted.doubted
    assert after(doubted, [True] * 19).doubted
    assert not after(doubted, [True] * 20).doubted
    assert not after(doubted, [True, False] + [True] * 18).doubted
    assert after(doubted, [False, False] + [True] * 18).doubted
    assert after(doubted, [number % 4 > 0 for number in range(200)]).doubted


def test_bounds_that_hold_as_often_as_they_say_are_hardly_ever_doubted() -> None:
    draw = random.Random(1)
    audits, doubted = Audits(), 0
    for _ in range(5_000):
        audits = after(audits, [draw.random() < 0.95])
        doubted += audits.doubted
    assert doubted < 0.05 * 5_000


def test_doubt_outlives_the_journal_and_older_journals_have_none() -> None:
    doubted = after(Audits(), [False] * 2 + [True] * 3)
    assert Audits.from_json(doubted.to_json()) == doubted
    older = doubted.to_json()[:6]
    assert not Audits.from_json(older).doubted
