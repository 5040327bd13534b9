"""`slackwater demo`: many window queries on this machine, watched live."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from slackwater.bench.charts import latency_chart, terminal_histogram
from slackwater.bench.table import show_latency
from slackwater.bench.ysb import WINDOW, events, views_app
from slackwater.cli.board import StepNotes, board
from slackwater.cli.consoles import output, print_note
from slackwater.cli.starting import spark_session
from slackwater.errors import DescriptionError
from slackwater.progress.distributions import NAMED_DELAYS, delay_named
from slackwater.runtime.reports import PaneReport
from slackwater.runtime.runtime import Runtime
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater.spark.sinks.parquet import parquet
from slackwater.spark.sources.ysb import ysb_ads

WARM_UP_SHARE = 1 / 3  # of the run, at most
WARM_UP_S = 10.0
DEPLOYING_MS = 500  # streams start when the queries are about to run
SEED = 7


def demo(
    queries: Annotated[int, typer.Option(min=1, help="Queries to run.")] = 20,
    seconds: Annotated[float, typer.Option(min=1, help="How long to run them.")] = 30,
    rate: Annotated[float, typer.Option(min=1, help="Events a second for each query.")] = 1_000,
    delay: Annotated[
        str, typer.Option(help=f"How events are delayed: {', '.join(NAMED_DELAYS)}.")
    ] = "uniform",
    policy: Annotated[
        str, typer.Option(help=f"Which queries run next: {', '.join(POLICIES)}.")
    ] = "deadline",
    out: Annotated[
        Path | None,
        typer.Option(help="Keep journal, results and chart in this new directory."),
    ] = None,
) -> None:
    """Run many window queries on this machine for a while, and show how late their results are.

    Each query counts the views per advertising campaign in windows of three seconds (the Yahoo
    Streaming Benchmark) over its own generated stream, with a journal and durable results.
    """
    chosen, _ = policy_named(policy), delay_named(delay)
    directory = _new_directory(out)
    print_note(
        f"{queries} queries, {rate:,.0f} events/s each, windows of {WINDOW}, delay {delay}, "
        f"policy {policy}"
    )
    notes = StepNotes()
    with spark_session() as spark:
        sink = parquet(directory / "views")
        with Runtime(spark, policy=chosen, journal=directory) as rt:
            with output.status("planning ...") if output.is_terminal else nullcontext():
                app = views_app(ysb_ads(spark), sink)
                start_ms = int(time.time() * 1_000) + DEPLOYING_MS
                for number in range(queries):
                    source = events(
                        rate=rate, delay=delay, seed=SEED, query=number, start_ms=start_ms
                    )
                    rt.deploy(app, f"ysb-{number:0{len(str(queries - 1))}d}", events=source)
            rt.observe(notes)
            with board(output, rt, notes, seconds):
                rt.run(seconds=seconds)
    warm_up_s = min(WARM_UP_S, seconds * WARM_UP_SHARE)
    panes = [p for p in notes.panes if p.window_end_ms >= start_ms + warm_up_s * 1_000]
    _print_summary(notes, panes, warm_up_s)
    if panes:
        latencies = [pane.latency_ms for pane in panes]
        output.print(terminal_histogram(latencies, title="latency"))
        latency_chart({policy: latencies}, directory / "latency.png")
        print_note(f"chart: {directory / 'latency.png'}")
    if out is None:
        _remove_all_but_chart(directory)
        print_note("--out DIR keeps the results and the journal")
    else:
        print_note(f"results: {directory / 'views'}; journal: slackwater status {directory}")


def _new_directory(out: Path | None) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="slackwater-demo-"))
    try:
        out.mkdir(parents=True, exist_ok=True)
        empty = not any(out.iterdir())
    except OSError as error:
        raise DescriptionError(f"--out {out} cannot be used ({error}): name another") from error
    if not empty:
        raise DescriptionError(f"--out {out} is not empty: name a new directory")
    return out


def _remove_all_but_chart(directory: Path) -> None:
    for made in directory.iterdir():
        if made.is_dir():
            shutil.rmtree(made)
    if not any(directory.iterdir()):
        directory.rmdir()


def _print_summary(notes: StepNotes, panes: Sequence[PaneReport], warm_up_s: float) -> None:
    """Print the figures of the panes after the warm-up, and the totals."""
    output.print()
    output.print(
        f"{notes.events:,} events in {notes.steps:,} steps, "
        f"{notes.queries_per_step:.1f} queries/step, {len(notes.panes):,} windows"
    )
    if not panes:
        output.print("no window closed after the warm-up: give it more --seconds")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(f"{len(panes):,} windows after {warm_up_s:.0f} s of warm-up")
    for name in ("mean", "p50", "p95", "p99", "max"):
        table.add_column(name, justify="right")
    known = [pane.propagation_ms for pane in panes if pane.propagation_ms is not None]
    for name, values in (
        ("latency: result after the window's end", [pane.latency_ms for pane in panes]),
        ("propagation: result after its watermark", known),
    ):
        if values:
            quantiles = np.percentile(values, [50, 95, 99, 100])
            table.add_row(name, *(show_latency(float(v)) for v in (np.mean(values), *quantiles)))
    output.print(table)
    output.print()
