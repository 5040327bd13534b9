"""Results as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from slackwater.cli.consoles import show_latency
from slackwater_lab.bench.options import FLINK, FLINK_DURABLE, STOCK, variant_text
from slackwater_lab.bench.repeats import summary


def results_table(results: Sequence[dict[str, Any]]) -> Table:
    """Set the results out side by side, latency first; ratios are to the first row."""
    table = Table(title=_title(results), title_justify="left", caption=_caption(results))
    table.add_column("policy", style="bold")
    for heading in (
        "mean",
        "p50",
        "p95",
        "p99",
        "max",
        "x mean",
        "propagation",
        "fired / due",
        "events/s",
        "steps",
        "queries/step",
        "CPU",
        "memory",
        "deciding",
    ):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(*_cells(result, results[0]))
    return table


def summary_table(results: Sequence[dict[str, Any]]) -> Table:
    """Set the policies out side by side, over all their seeds: means with 95 % intervals."""
    table = Table(title=_title(results), title_justify="left", caption=_summary_caption(results))
    table.add_column("policy", style="bold")
    for heading in ("mean", "p99", "propagation", "p99 of it", "x mean", "fired / due", "CPU"):
        table.add_column(heading, justify="right")
    for it in summary(results):
        table.add_row(
            it["policy"],
            *(
                show_interval(it[name])
                for name in ("mean_ms", "p99_ms", "propagation_mean_ms", "propagation_p99_ms")
            ),
            _ratio_interval(it["ratios"]["mean_ms"]),
            f"{it['windows_fired']['mean']:,.0f} / {it['windows_due']['mean']:,.0f}",
            "-" if it["cpu_share"] is None else _percent(it["cpu_share"]["mean"]),
        )
    return table


def show_interval(it: dict[str, Any] | None) -> str:
    """Write a mean latency with its interval.

    >>> show_interval({"mean": 187.4, "low": 180.0, "high": 194.8, "runs": 3})
    '187 ms (180 ms - 195 ms)'
    """
    if it is None:
        return "-"
    if it["low"] is None:
        return show_latency(it["mean"])
    # A latency below nothing is no finding, only too few runs.
    low, high = max(0.0, it["low"]), it["high"]
    return f"{show_latency(it['mean'])} ({show_latency(low)} - {show_latency(high)})"


def _ratio_interval(it: dict[str, Any] | None) -> str:
    if it is None:
        return "-"
    if it["low"] is None or it["low"] == it["high"]:
        return f"{it['mean']:.2f}"
    return f"{it['mean']:.2f} ({it['low']:.2f} - {it['high']:.2f})"


def _cells(result: dict[str, Any], first: dict[str, Any]) -> list[str]:
    policy = result["policy"]
    if result.get("trigger"):
        policy = f"{policy} ({variant_text(policy, result['trigger'])})"
    return [
        policy,
        *(show_latency(result[f"{name}_ms"]) for name in ("mean", "p50", "p95", "p99", "max")),
        _ratio(result["mean_ms"], first["mean_ms"]),
        show_latency(result["propagation_mean_ms"]),
        f"{result['windows_fired']:,} / {result['windows_due']:,}",
        f"{result['events_per_s']:,.0f}",
        f"{result['steps']:,}",
        "-" if result["queries_per_step"] is None else f"{result['queries_per_step']:.1f}",
        _percent(result["cpu_share"]),
        "-" if result["memory_peak_mb"] is None else f"{result['memory_peak_mb']:,.0f} MB",
        _percent(result["overhead_share"]),
    ]


def _ratio(value: float | None, base: float | None) -> str:
    return "-" if value is None or not base else f"{value / base:.2f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _title(results: Sequence[dict[str, Any]]) -> str:
    if not results:
        return "no results"
    it = results[0]
    seeds = sorted({result["seed"] for result in results})
    load = f" (load {it['load']:g})" if it.get("load") is not None else ""
    return (
        f"{it['workload']}: {it['queries']} queries x {it['rate']:,.0f} events/s{load}, "
        f"{it['seconds']:g} s, delay {it['delay']}, "
        + (f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}")
    )


def _summary_caption(results: Sequence[dict[str, Any]]) -> str:
    seeds = len({result["seed"] for result in results})
    return (
        f"means over {seeds} runs, with 95 % intervals (Student's t); ratios run by run\n"
        f"{_caption(results)}"
    )


def _caption(results: Sequence[dict[str, Any]]) -> str:
    notes = ["latency: result committed minus window end; propagation: minus closing watermark"]
    policies = {result["policy"] for result in results}
    if STOCK in policies:
        notes.append("stock: Structured Streaming with its better trigger, results not stored")
    if policies & {FLINK, FLINK_DURABLE}:
        notes.append(
            "flink: the better watermark interval, results not stored; propagation from the event "
            "that its watermark needs"
        )
    return "\n".join(notes)
