"""The core works without what only commands, Kafka or the laboratory need."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
# The command line as it is where nothing else is installed beside it.
ALONE = """
import importlib.metadata
importlib.metadata.entry_points = lambda **chosen: ()
sys.argv = ["slackwater", {!r}, {!r}]
from slackwater.command import main; main()
"""
OF_EXTRAS = ("click", "confluent_kafka", "fastavro", "matplotlib", "psutil", "rich", "typer")


def run(program: str, *, without: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=without) + program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )


def test_the_core_is_imported_without_any_extra() -> None:
    program = "import slackwater, slackwater.testing; slackwater.console(); print('fine')"
    done = run(program, without=(*OF_EXTRAS, "slackwater_lab"))
    assert done.stdout == "fine\n", done.stderr


def test_a_name_of_an_extra_says_what_to_install() -> None:
    done = run("import slackwater; slackwater.kafka", without=OF_EXTRAS)
    assert "MissingRequirementError: slackwater.kafka needs" in done.stderr
    assert "pip install 'slackwater[kafka]'" in done.stderr
    done = run("import slackwater; slackwater.nyt", without=("slackwater_lab",))
    assert "pip install 'slackwater-lab'" in done.stderr


def test_the_command_line_says_what_to_install() -> None:
    done = run("from slackwater.command import main; main()", without=OF_EXTRAS)
    assert done.returncode == 1
    assert "pip install 'slackwater[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_that_need_no_kafka_run_without_its_client() -> None:
    done = run(ALONE.format("status", "/nowhere"), without=("confluent_kafka", "fastavro"))
    assert done.stderr.startswith("error: /nowhere holds no journal"), done.stderr


def test_a_command_of_the_laboratory_says_where_it_comes_from() -> None:
    done = run(ALONE.format("bench", "ysb"), without=("slackwater_lab",))
    assert done.returncode == 1
    assert "pip install slackwater-lab" in done.stderr
