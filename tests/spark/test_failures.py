"""Errors as PySpark 4.3 raised them, recorded: what is said of each names the user's place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slackwater.errors import SinkError
from slackwater.spark.failures import defined_at, during, explain, few, user_place

RECORDED = Path(__file__).with_name("recorded_failures")
HERE = os.path.abspath(__file__)


def recorded(name: str) -> Exception:
    kind, _, text = (RECORDED / f"{name}.txt").read_text().partition("\n")
    error: Exception = type(kind, (Exception,), {})(text)
    return error


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("udf", "KeyError: 'b', in helper (/home/ann/shop.py, line 55)"),
        (
            "returned_columns",
            "PySparkRuntimeError: [RESULT_COLUMN_NAMES_MISMATCH] Column names of the returned data "
            "do not match specified schema. Missing: user.",
        ),
        ("raised_in_sql", "SparkRuntimeException: [USER_RAISED_EXCEPTION] bad v"),
        (
            "java_in_awaitresult",
            "SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered "
            "error while reading file file:///data/in/a.parquet. Data type mismatches when reading "
            "Parquet column [ts]. Expected Spark type timestamp, actual Parquet type BINARY",
        ),
    ],
)
def test_a_recorded_error_is_told_in_one_line(name: str, said: str) -> None:
    assert explain(recorded(name)) == said


@pytest.mark.parametrize(
    ("name", "begins", "ends"),
    [
        ("division", "ArithmeticException: [DIVIDE_BY_ZERO] Division by zero.", "(in '10 div v')"),
        ("division_by_columns", "ArithmeticException: [DIVIDE_BY_ZERO]", '(in "divide")'),
        ("cast", "NumberFormatException: [CAST_INVALID_INPUT] The value 'ann'", '(in "cast")'),
        (
            "dead_worker",
            "SparkException: Python worker exited unexpectedly (crash",
            "traceback.",
        ),
        ("analysis", "AnalysisException: [NESTED_AGGREGATE_FUNCTION] It is not", "in a sub-query"),
    ],
)
def test_an_error_of_spark_names_what_it_is_about(name: str, begins: str, ends: str) -> None:
    said = explain(recorded(name))
    assert said.startswith(begins)
    assert said.endswith(ends)
    assert "\n" not in said


def fails(kind: type[Exception]) -> None:
    raise kind("no such user")


def test_an_error_of_the_driver_names_the_deepest_line_of_the_users() -> None:
    with pytest.raises(ValueError, match="no such") as caught:
        fails(ValueError)
    line = fails.__code__.co_firstlineno + 1
    assert explain(caught.value) == f"ValueError: no such user, in fails ({HERE}, line {line})"


def test_code_that_is_installed_is_a_place_only_where_there_is_no_other() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/opt/venv/lib/python3.11/site-packages/shop/rules.py", line 7, in rule\n'
        '  File "/usr/lib/python3.11/json/decoder.py", line 9, in decode\n'
        '  File "/opt/venv/lib/python3.11/site-packages/pandas/core/frame.py", line 3, in f\n'
        "KeyError: 'x'\n"
    )
    found = explain(RuntimeError(trace))
    assert found.startswith("KeyError: 'x', in rule (")
    assert found.endswith("site-packages/shop/rules.py, line 7)")
    mine = trace.replace("KeyError", '  File "/home/ann/a.py", line 1, in mine\nKeyError')
    assert "in mine (/home/ann/a.py, line 1)" in explain(RuntimeError(mine))


def test_of_errors_raised_while_others_were_handled_the_last_is_told() -> None:
    first = 'Traceback (most recent call last):\n  File "/a.py", line 1, in a\nKeyError: 1\n'
    then = "\nDuring handling of the above exception, another exception occurred:\n\n"
    last = 'Traceback (most recent call last):\n  File "/a.py", line 2, in b\nOSError: gone\n'
    assert explain(RuntimeError(first + then + last)) == "OSError: gone, in b (/a.py, line 2)"


def test_our_own_errors_say_where_their_cause_was() -> None:
    error = SinkError("the sink is gone: mend it")
    with pytest.raises(OSError, match="no such user") as caught:
        fails(OSError)
    error.__cause__ = caught.value
    told = explain(error)
    assert told.startswith("SinkError: the sink is gone: mend it, in ")
    assert HERE in told


def test_an_error_says_what_was_being_done_and_a_long_message_is_cut() -> None:
    with pytest.raises(ValueError, match="x") as caught, during(lambda: "while it rained"):
        raise ValueError("x" * 5_000)
    told = explain(caught.value)
    assert told.endswith("while it rained")
    assert HERE in told
    assert len(told) < 1_000


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ConnectionError("the gateway is gone")


def test_an_error_that_cannot_be_written_any_more_is_told_by_its_kind() -> None:
    assert explain(_UnspeakableError()) == "_UnspeakableError"
    assert explain(_UnspeakableError("o15.getResult")) == "_UnspeakableError: o15.getResult"


def test_functions_are_named_with_their_lines() -> None:
    line = fails.__code__.co_firstlineno
    assert defined_at(fails) == f"fails ({HERE}, line {line})"
    assert defined_at(print) == "print"
    assert user_place(ValueError("never raised")) is None


def test_many_names_are_counted() -> None:
    assert few([str(n) for n in range(1_000)]) == "0, 1, 2, 3, 4 and 995 more"
