from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from tests.cli.conftest import Invoke

from slackwater.cli import main
from slackwater.cli.consoles import print_error, show_time


def test_version_names_the_program(invoke: Invoke) -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("slackwater ")


def test_help_lists_every_command(invoke: Invoke) -> None:
    page = invoke("--help").stdout
    for command in ("demo", "run", "status", "bench", "report"):
        assert command in page


def test_an_error_is_one_line_and_what_it_quotes_follows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error("it failed [badly]: mend it\nthe end of the log")
    assert capsys.readouterr().err.splitlines() == [
        "error: it failed [badly]: mend it",
        "the end of the log",
    ]


def test_log_messages_are_shown_only_while_a_command_runs(invoke: Invoke) -> None:
    before = list(logging.getLogger("slackwater").handlers)
    invoke("status", "nowhere")
    assert logging.getLogger("slackwater").handlers == before


def test_times_of_day_wrap_at_midnight() -> None:
    assert show_time(86_400_000 + 1) == "00:00:00.001"


def test_the_command_can_be_started_without_a_terminal() -> None:
    code = f"from {main.__name__} import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, "status", "/nowhere"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: /nowhere holds no journal")
