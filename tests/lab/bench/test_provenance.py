import json

import pytest

from slackwater_lab.bench.provenance import machine, provenance


def test_figures_say_where_and_when_they_were_measured() -> None:
    described = provenance()
    assert json.loads(json.dumps(described)) == described
    assert described["measured_at"].endswith("+00:00")
    assert int(described["machine"]["cores"]) >= 1
    assert {"memory", "system", "Python", "PySpark"} <= set(described["machine"])


def test_a_java_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    machine.cache_clear()
    try:
        assert "Java" not in machine()
    finally:
        machine.cache_clear()
