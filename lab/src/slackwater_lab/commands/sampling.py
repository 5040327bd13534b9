"""`slackwater sampling`: bounded results against waiting for everything, measured on Spark."""

from __future__ import annotations

import json as json_format
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import slackwater as sw
from slackwater.cli.consoles import print_note, print_table, show_latency
from slackwater_lab.bench.sampled import METHODS, SampledRun, measure
from slackwater_lab.bench.sampled_apps import SAMPLED_APPS
from slackwater_lab.simulate.sampled import STREAMS


def sampling(
    workload: Annotated[str, typer.Argument(help=f"One of {', '.join(SAMPLED_APPS)}.")] = "ysb",
    stream: Annotated[
        str, typer.Option(help=f"Delays and gaps, with commas between: {', '.join(STREAMS)}.")
    ] = "EG",
    rate: Annotated[str, typer.Option(help="Events a second, with commas between.")] = "5000",
    error: Annotated[float, typer.Option(help="The relative error to stay within.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="How surely.")] = 0.95,
    groups: Annotated[
        float | None, typer.Option(help="Bound every group with this share of the rows.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help=f"With commas between: {', '.join(METHODS)}.")
    ] = ",".join(METHODS),
    seconds: Annotated[float, typer.Option(help="How long to measure each.")] = 45.0,
    warmup: Annotated[float, typer.Option(help="Seconds before that.")] = 20.0,
    queries: Annotated[int, typer.Option(help="Queries at once, each at that rate.")] = 4,
    seed: Annotated[int, typer.Option(help="Same seed, same events.")] = 7,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.")] = None,
) -> None:
    """Measure how early results come, how exact they are, and from how few events."""
    runs = [
        SampledRun(
            workload=workload,
            stream=kind,
            rate=float(events),
            seconds=seconds,
            warmup=warmup,
            error=error,
            confidence=confidence,
            groups=groups,
            queries=queries,
            seed=seed,
            methods=tuple(methods.split(",")),
        )
        for kind in stream.split(",")
        for events in rate.split(",")
    ]
    results: list[dict[str, Any]] = []
    spark = sw.session()
    try:
        with tempfile.TemporaryDirectory(prefix="slackwater-sampling-") as directory:
            for number, run in enumerate(runs):
                for method in run.methods:
                    print_note(f"{workload} {run.stream} at {run.rate:,.0f} ev/s: {method}")
                    found = measure(spark, run, method, Path(directory) / str(number))
                    results.append(found)
                    if json is not None:
                        json.write_text(json_format.dumps(results, indent=2) + "\n")
    finally:
        spark.stop()
    print_table(_table(results))


def _table(results: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{results[0]['workload']}, error {results[0]['error']:.0%}")
    for heading in ("stream", "ev/s", "method"):
        table.add_column(heading)
    for heading in (
        "mean",
        "p99",
        "below default",
        "p99 below",
        "windows",
        "within",
        "worst",
        "bounds held",
        "sampled",
        "work",
        "planning",
    ):
        table.add_column(heading, justify="right")
    bases: dict[tuple[Any, ...], dict[str, Any]] = {}
    for it in results:
        base = bases.setdefault((it["stream"], it["rate"]), it)
        held = it["bounds_held"]
        table.add_row(
            it["stream"],
            f"{it['rate']:,.0f}",
            it["method"],
            show_latency(it["mean_ms"]),
            show_latency(it["p99_ms"]),
            f"{1 - it['mean_ms'] / base['mean_ms']:.1%}",
            f"{1 - it['p99_ms'] / base['p99_ms']:.1%}",
            f"{it['windows']}",
            f"{it['within']:.1%}",
            f"{it['error_max']:.1%}",
            "-" if held is None else f"{held:.1%}",
            f"{it['sampled_share']:.1%}",
            show_latency(it["work_ms"]),
            f"{it['plan_ms'] / it['mean_ms']:.2%}",
        )
    return table
