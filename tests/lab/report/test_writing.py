import json
import re
from base64 import b64decode
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.lab.report.results import result

from slackwater_lab.report.reading import ReportError
from slackwater_lab.report.writing import write_report

WRITTEN = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
LATENCIES = [float(place) for place in range(1, 200)]
PROFILED: dict[str, Any] = {
    "latencies_ms": LATENCIES,
    "propagations_ms": LATENCIES,
    "slowdowns": [1.0, 1.5, 4.0],
    "samples": [[1_000.0 + 500 * i, 0.4 * i, 300.0 + i] for i in range(20)],
    "swm_coverage": 0.95,
    "machine": {"cores": "2", "processor": "a <fast> one"},
    "measured_at": "2026-03-04T05:00:00+00:00",
}


class Page(HTMLParser):
    """Read a page, and notice tags that are not closed in order."""

    VOID = ("meta", "img", "!doctype")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def report(tmp_path: Path, *results: dict[str, Any]) -> str:
    (tmp_path / "out.json").write_text(json.dumps(results))
    write_report([tmp_path / "out.json"], tmp_path / "page.html", written=WRITTEN)
    return (tmp_path / "page.html").read_text()


def test_a_profiled_comparison_has_every_plot_and_each_says_what_it_shows(tmp_path: Path) -> None:
    text = report(
        tmp_path,
        *(result(policy, queries=n, **PROFILED) for n in (2, 8) for policy in ("klink", "fcfs")),
    )
    page = Page(text)
    assert len(page.images) == 2 * 8 + 2
    assert "Not shown" not in page.text
    for image in page.images:
        assert re.search(r"(klink|fcfs).*\d", image["alt"] or "")
        kind, _, data = (image["src"] or "").partition(",")
        assert kind == "data:image/svg+xml;base64"
        picture = b64decode(data).decode()
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert "currentColor" in picture
    assert "half within 100 ms, 99 % within 197 ms" in (page.images[0]["alt"] or "")
    assert "Written 2026-03-04 05:06 UTC" in page.text
    assert "Measured 2026-03-04T05:00:00+00:00" in page.text
    assert "a <fast> one" in page.text
    # It asks nothing of the network.
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text)
    assert "url(" not in text
    assert "@import" not in text


def test_axes_are_numbered_without_powers_however_narrow(tmp_path: Path) -> None:
    narrow: dict[str, Any] = {
        "latencies_ms": [541.0, 560.0, 603.0],
        "propagations_ms": [0.2, 31_000.0],
    }
    for image in Page(report(tmp_path, result("flink", **narrow))).images:
        picture = b64decode((image["src"] or "").partition(",")[2]).decode()
        assert "math" not in picture
        numbers = re.findall(r">(-?[0-9][0-9.,]*)</text>", picture)
        assert len(numbers) >= 2


def test_what_a_file_does_not_hold_is_left_out_with_the_reason(tmp_path: Path) -> None:
    page = Page(report(tmp_path, result("deadline"), result("stock", overhead_share=None)))
    assert [(image["alt"] or "")[:24] for image in page.images] == ["One bar for each policy."] * 2
    for title in ("Output latency", "Propagation", "CPU over time", "Memory over time"):
        assert re.search(rf"{title}: the file .*--profile", page.text)
    assert "SWM coverage: no result has it" in page.text
    assert "Mean latency by number of queries: no policy was run with two numbers" in page.text
    assert "out.json: the file does not say on which machine it was measured." in page.text
    assert "Not every result says when it was measured." in page.text


def test_nothing_that_comes_from_a_file_becomes_markup(tmp_path: Path) -> None:
    evil = '</style></title><script>alert("$x^{")</script><img src=x onerror=alert(1)>'
    hurt = PROFILED | {"machine": {evil: evil}, "measured_at": evil, "trigger": evil, "sink": evil}
    page = Page(report(tmp_path, result(evil, workload=evil, delay=evil, phase=evil, **hurt)))
    assert "script" not in page.tags
    assert all((image["src"] or "").startswith("data:image/svg") for image in page.images)
    assert evil in page.text
    for image in page.images:
        picture = b64decode((image["src"] or "").partition(",")[2])
        tags = {
            element.tag.rpartition("}")[2] for element in ElementTree.fromstring(picture).iter()
        }
        assert not tags & {"script", "img", "foreignObject"}


def test_plots_are_written_beside_the_page_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text(json.dumps([result("deadline", **PROFILED)]))
    written = write_report(
        [tmp_path / "out.json"], tmp_path / "page.html", pictures=tmp_path / "a" / "png"
    )
    pictures = sorted((tmp_path / "a" / "png").iterdir())
    assert {tmp_path / "page.html", *pictures} == set(written)
    assert [path.stem for path in pictures] == [
        f"1-{name}"
        for name in (
            "coverage",
            "cpu",
            "latency",
            "memory",
            "overhead",
            "propagation",
            "slowdown",
            "throughput",
        )
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_the_same_results_give_the_same_page(tmp_path: Path) -> None:
    results = [result("deadline", latencies_ms=LATENCIES), result("stock")]
    assert report(tmp_path, *results) == report(tmp_path, *results)


def test_a_page_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text(json.dumps([result("deadline")]))
    with pytest.raises(ReportError, match=r"nowhere/page.html cannot be written: No such file"):
        write_report([tmp_path / "out.json"], tmp_path / "nowhere" / "page.html")
