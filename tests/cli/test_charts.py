from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from slackwater.cli.charts import histogram, latency_chart, terminal_histogram


def test_every_latency_is_in_one_bin() -> None:
    latencies = [float(i % 97) for i in range(1_000)] + [4_000.0]
    rows = histogram(latencies, bins=10)
    assert sum(count for _, count, _ in rows) == 1_001
    assert max(share for _, _, share in rows) == 1.0


def test_stragglers_share_the_last_bin_so_that_the_others_stay_apart() -> None:
    rows = histogram([float(i) for i in range(100)] * 10 + [60_000.0], bins=10)
    assert len(rows) == 10
    assert rows[-1][0] == "90 ms +"
    assert rows[-1][1] == 101


@pytest.mark.parametrize("latencies", [[], [5.0], [-3.0, 2.0], [0.0, 0.0]])
def test_few_or_odd_latencies_are_drawn_too(latencies: list[float]) -> None:
    assert sum(count for _, count, _ in histogram(latencies, bins=12)) == len(latencies)
    drawn = StringIO()
    Console(file=drawn).print(terminal_histogram(latencies))
    assert ("█" in drawn.getvalue()) == bool(latencies)


def test_the_chart_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "latency.png"
    latency_chart({"deadline": [30.0, 40.0, 120.0], "stock": [4_000.0], "none": []}, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_chart_of_nothing_is_drawn_too(tmp_path: Path) -> None:
    latency_chart({}, tmp_path / "empty.png")
    assert (tmp_path / "empty.png").exists()
