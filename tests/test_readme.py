"""The code in README and docs works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(document: str) -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.spark
def test_the_first_program_of_the_readme_runs_as_pasted(tmp_path: Path) -> None:
    program = tmp_path / "pasted.py"
    program.write_text(blocks("README.md")[0])
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "shop-0" in done.stdout
    assert "shop-2" in done.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_readme_s_test_of_a_query_passes() -> None:
    exec(compile(blocks("README.md")[1], "README.md", "exec"), {})


@pytest.mark.spark
def test_the_testing_guide_s_example_passes(spark: object) -> None:
    names: dict[str, object] = {}
    exec(compile(blocks("docs/testing.md")[0], "docs/testing.md", "exec"), names)
    test = names["test_late_clicks_amend_their_window"]
    assert callable(test)
    test(spark)


@pytest.mark.spark
def test_the_examples_of_joins_and_chains_pass(spark: object) -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/joins.md"):
        exec(compile(block, "docs/joins.md", "exec"), names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 3
    for name in tests:
        test = names[name]
        assert callable(test)
        test(spark)


def test_the_documents_link_only_to_what_exists() -> None:
    for document in (
        "README.md",
        "CONTRIBUTING.md",
        *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
    ):
        base = (ROOT / document).parent
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text()):
            assert (base / target).exists(), f"{document} links to {target}"


@pytest.mark.spark
def test_the_examples_of_windows_pass(spark: object, tmp_path: Path) -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/windows.md"):
        exec(compile(block, "docs/windows.md", "exec"), names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 3
    for name in tests:
        test = names[name]
        assert callable(test)
        test(spark, tmp_path) if "readers" in name else test(spark)
