from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.parsing import MOST_LEVELS, brief, parsed_json, read_json, read_toml


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        "[" * (MOST_LEVELS + 2) + "]" * (MOST_LEVELS + 2),
    ],
)
def test_json_that_is_nested_too_deeply_is_a_value_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bomb.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="levels deep"):
        read_json(file)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 50_000,
        "a = " + "[" * 50_000 + "]" * 50_000,
        "a = " + "{b=" * 10_000 + "1" + "}" * 10_000,
        "a" + ".a" * 5_000 + " = 1",  # nests without any bracket
        "[a" + ".a" * 5_000 + "]\nb = 1",
    ],
)
def test_toml_that_is_nested_too_deeply_is_a_value_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bomb.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match="levels deep"):
        read_toml(file)


def test_a_file_too_large_to_be_a_scenario_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.toml"
    file.write_text("#" * (1 << 20) + "\n")
    with pytest.raises(ValueError, match="bytes"):
        read_toml(file)


def test_what_is_nested_as_deeply_as_allowed_is_read_whole() -> None:
    text = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert str(parsed_json(text)) == text


def test_a_long_value_is_cut_in_messages() -> None:
    assert len(brief(list(range(10_000)))) == 60
