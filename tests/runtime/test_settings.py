"""Settings are checked before anything is opened, and what was opened is closed again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.errors import DescriptionError, SlackwaterError
from slackwater.runtime.journal import Journal
from slackwater.runtime.runtime import Runtime
from slackwater.runtime.settings import RuntimeSettings
from slackwater.scheduling.policies import POLICIES

GIVEN: dict[str, Any] = {
    "policy": None,
    "journal": None,
    "slots": None,
    "budget": "250 ms",
    "memory": "1 GB",
    "state": "tiered",
    "storage": None,
    "tiering": None,
    "prepare": True,
    "durable": True,
    "shared": False,
    "dead_letters": "file",
    "limits": None,
    "profile": False,
    "clock": None,
    "step_limit": "10 minutes",
    "stop_limit": "30 seconds",
}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"policy": "klnik"}, "policy='klnik' is unknown: use one of klink, "),
    ({"policy": sw.klink}, "give a policy such as sw.klink(), or the name of one (klink, "),
    ({"policy": 3}, "policy=3 cannot be used as one: give a policy such as sw.klink()"),
    ({"journal": 3}, "journal=3: give a directory, as text or as a Path"),
    ({"journal": b"state"}, "journal=b'state': give a directory"),
    ({"journal": " "}, "journal=' ' is empty"),
    ({"slots": 0}, "slots=0: give how many steps may run at once, 1 or more"),
    ({"slots": 1.5}, "slots=1.5"),
    ({"slots": True}, "slots=True"),
    ({"budget": "x"}, "budget='x' is not a duration"),
    ({"budget": 250}, "budget=250 is not a duration: write it with its unit"),
    ({"step_limit": 600}, "step_limit=600 is not a duration"),
    ({"stop_limit": "0 s"}, "stop_limit='0 s' is zero"),
    ({"memory": "much"}, "memory='much' is no amount of memory"),
    ({"state": "disk"}, "state='disk': use 'tiered' or 'memory'"),
    ({"storage": 3}, "storage=3: give a directory"),
    ({"tiering": "standard"}, "tiering='standard' cannot be used as one"),
    ({"prepare": "no"}, "prepare='no': give True or False"),
    ({"dead_letters": "drop"}, "dead_letters='drop': use 'file' or 'count'"),
    ({"limits": 3}, "limits=3: give Limits(...)"),
    ({"clock": 3}, "clock=3 cannot be used as one"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_a_setting_that_cannot_be_is_named_with_its_remedy(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(DescriptionError) as raised:
        RuntimeSettings.checked(**GIVEN | given)
    assert said in str(raised.value)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_may_be_given_by_its_name(name: str) -> None:
    assert RuntimeSettings.checked(**GIVEN | {"policy": name}).policy.name == name


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "slackwater" in thread.name}


@pytest.mark.spark
def test_a_runtime_that_cannot_be_made_leaves_no_lock_and_no_thread(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, before = tmp_path / "state", threads()
    for given, _ in WRONG:
        with pytest.raises(DescriptionError):
            Runtime(spark, **{"journal": journal} | given)
    assert not journal.exists()
    # Every place at which something more is opened, with what is open by then.
    for name in ("BlockStore", "StepRunner", "IoLane", "Tiers", "Auditor", "Loop"):
        with monkeypatch.context() as patched:
            patched.setattr(f"slackwater.runtime.runtime.{name}", _fails)
            with pytest.raises(RuntimeError, match="out of file handles"):
                Runtime(spark, journal=journal)
        assert threads() == before
        Journal.open(journal / "journal").close()
    with pytest.raises(SlackwaterError):
        Runtime(spark, journal=journal, storage="nowhere://at/all")
    assert threads() == before
    runtime = Runtime(spark, journal=journal)
    runtime.close()
    runtime.close()
    assert threads() == before


def _fails(*_: object, **__: object) -> None:
    raise RuntimeError("out of file handles")
