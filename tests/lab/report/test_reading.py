import json
from pathlib import Path
from typing import Any

import pytest
from tests.lab.report.results import result

from slackwater_lab.report.reading import ReportError, read_runs


def written(path: Path, held: Any) -> Path:
    path.write_text(held if isinstance(held, str) else json.dumps(held))
    return path


def test_a_plain_list_and_results_with_a_summary_read_alike(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.json", [result("deadline")])
    summed = written(tmp_path / "summed.json", {"results": [result("deadline")], "summary": {}})
    [one], [other] = read_runs([plain]), read_runs([summed])
    assert one.values == other.values
    assert [run.file for run in read_runs([plain, summed])] == ["plain.json", "summed.json"]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ("{broken", "holds no JSON"),
        ("\x00\x01", "holds no JSON"),
        (3, "no list of results"),
        ({"summary": []}, "no list of results"),
        ([], "nothing to report"),
        ([7], "result 1 is no JSON object, but 7"),
        ([{"policy": "deadline"}], "result 1 has no 'workload'"),
        ([result("deadline"), result("stock", mean_ms="fast")], "result 2: 'mean_ms' is no number"),
        ([result("deadline", p99_ms=True)], "'p99_ms' is no number, but true"),
        ([result("deadline") | {"policy": None}], "'policy' is no text, but null"),
        ([result("deadline") | {"queries": None}], "'queries' is null"),
        ([result("deadline", latencies_ms=[1, "2"])], "'latencies_ms' is no list of numbers"),
    ],
)
def test_what_is_no_result_is_refused_with_its_place(tmp_path: Path, held: Any, said: str) -> None:
    path = written(tmp_path / "out.json", held)
    with pytest.raises(ReportError, match=said) as raised:
        read_runs([path])
    assert str(path) in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "image.json").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ReportError, match="holds no JSON"):
        read_runs([tmp_path / "image.json"])
    with pytest.raises(ReportError, match="cannot be read: No such file"):
        read_runs([tmp_path / "nowhere.json"])
    with pytest.raises(ReportError, match="cannot be read: Is a directory"):
        read_runs([tmp_path])


def test_windows_stand_in_for_lists_of_latencies(tmp_path: Path) -> None:
    windows = [[1_000.0, 120.0, 60.0], [4_000.0, 140.0, 70.0], [5_000.0, None, None], "odd"]
    [run] = read_runs([written(tmp_path / "out.json", [result("deadline", windows=windows)])])
    assert run.each_window("latencies_ms") == [120.0, 140.0]
    assert run.each_window("propagations_ms") == [60.0, 70.0]
    assert run.each_window("slowdowns") == []


def test_a_peer_is_named_with_the_setting_it_did_best_with(tmp_path: Path) -> None:
    held = [result("stock", trigger="3 seconds"), result("flink", trigger="watermarks every 50 ms")]
    labels = [run.label for run in read_runs([written(tmp_path / "out.json", held)])]
    assert labels == ["stock (trigger 3 seconds)", "flink (watermarks every 50 ms)"]
