"""`slackwater demo`: many window queries on this machine, watched live."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.table import Table

from slackwater.app.aggregates import count
from slackwater.app.stream import App
from slackwater.app.windows import tumbling
from slackwater.cli.board import StepNotes, board
from slackwater.cli.charts import latency_chart, terminal_histogram
from slackwater.cli.consoles import output, print_note, print_table, show_latency
from slackwater.cli.starting import spark_session
from slackwater.errors import DescriptionError, SlackwaterError
from slackwater.progress.arrivals import stream_salt
from slackwater.progress.distributions import NAMED_DELAYS, delay_named
from slackwater.runtime.reports import PaneReport
from slackwater.runtime.runtime import Runtime
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater.spark.sinks.parquet import parquet
from slackwater.spark.sources.ysb import ysb, ysb_ads

WINDOW = "3 seconds"
WARM_UP_S = 30.0  # at most: it ends when every query gives its results in time
IN_TIME_MS = 1_000.0
DEPLOYING_MS = 500  # streams start when the queries are about to run
SEED = 7
CHART = "latency.png"


def demo(
    queries: Annotated[int, typer.Option(min=1, help="Queries to run.")] = 20,
    seconds: Annotated[float, typer.Option(min=1, help="How long to run them.")] = 30,
    rate: Annotated[float, typer.Option(min=1, help="Events a second for each query.")] = 1_000,
    delay: Annotated[
        str, typer.Option(help=f"How events are delayed: {', '.join(NAMED_DELAYS)}.")
    ] = "uniform",
    policy: Annotated[
        str, typer.Option(help=f"Which queries run next: {', '.join(POLICIES)}.")
    ] = "klink",
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
    with _directory(out) as directory:
        print_note(
            f"{queries} queries, {rate:,.0f} events/s each, windows of {WINDOW}, delay {delay}, "
            f"policy {policy}"
        )
        notes = StepNotes()
        with spark_session() as spark, Runtime(spark, policy=chosen, journal=directory) as rt:
            with output.status("warming up ...") if output.is_terminal else nullcontext():
                _deploy(rt, spark, directory / "views", queries, rate, delay)
                _warm_up(rt, queries)
            rt.observe(notes)
            started_ms = time.time() * 1_000
            with board(output, rt, notes, seconds):
                rt.run(seconds=seconds)
        panes = [pane for pane in notes.panes if pane.window_end_ms >= started_ms]
        _print_summary(notes, panes)
        if panes:
            latencies = [pane.latency_ms for pane in panes]
            output.print(terminal_histogram(latencies, title="latency"))
            _draw(policy, latencies, directory / CHART)
        if out is not None:
            print_note(f"results: {directory / 'views'}; journal: slackwater status {directory}")


def _draw(policy: str, latencies: Sequence[float], chart: Path) -> None:
    """Draw the latencies, where the library for it is installed."""
    try:
        latency_chart({policy: latencies}, chart)
    except ModuleNotFoundError as missing:
        print_note(f"no chart was drawn: pip install {missing.name}")
    else:
        print_note(f"chart: {chart}")


@contextmanager
def _directory(out: Path | None) -> Iterator[Path]:
    """Give the directory asked for, or a temporary one of which only the chart stays."""
    if out is not None:
        yield _new(out)
        return
    directory = Path(tempfile.mkdtemp(prefix="slackwater-demo-"))
    try:
        yield directory
    finally:
        for made in directory.iterdir():
            if made.is_dir():
                shutil.rmtree(made)
            elif made.name != CHART:
                made.unlink()
        if not any(directory.iterdir()):
            directory.rmdir()


def _new(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        empty = not any(out.iterdir())
    except OSError as error:
        raise DescriptionError(f"--out {out} cannot be used ({error}): name another") from error
    if not empty:
        raise DescriptionError(f"--out {out} is not empty: name a new directory")
    return out


def _deploy(
    rt: Runtime, spark: SparkSession, views: Path, queries: int, rate: float, delay: str
) -> None:
    ads = F.broadcast(ysb_ads(spark))
    app = App("ysb")
    (
        app.source("events")
        .transform(lambda events: events.where("event_type = 'view'").join(ads, "ad_id"))
        .window(tumbling(WINDOW, offset="spread"), by=["campaign_id"])
        .aggregate(views=count())
        .to(parquet(views))
    )
    start_ms = int(time.time() * 1_000) + DEPLOYING_MS
    width = len(str(queries - 1))
    for number in range(queries):
        source = ysb(rate=rate, delay=delay, seed=stream_salt(SEED, number), start_ms=start_ms)
        rt.deploy(app, f"ysb-{number:0{width}d}", events=source)


def _warm_up(rt: Runtime, queries: int) -> None:
    """Run until every query gives results in time: the first step plans, and Java compiles."""
    notes = StepNotes()
    rt.observe(notes)
    last_s = time.monotonic() + WARM_UP_S

    def is_warm() -> bool:
        last = notes.last_pane.values()
        in_time = sum(1 for pane in last if (pane.propagation_ms or 0.0) < IN_TIME_MS)
        return in_time == queries or time.monotonic() >= last_s

    rt.run(until=is_warm)
    for query in rt.queries():
        if query.quarantined is not None:
            raise SlackwaterError(f"query {query.name} failed: {query.quarantined}")
    if not is_warm():
        raise KeyboardInterrupt  # the runtime takes it for a wish to stop, which it was


def _print_summary(notes: StepNotes, panes: Sequence[PaneReport]) -> None:
    """Print the totals, and how late the results were."""
    output.print()
    output.print(
        f"{notes.events:,} events in {notes.steps:,} steps, "
        f"{notes.queries_per_step:.1f} queries/step, {len(panes):,} windows"
    )
    if not panes:
        output.print("no window closed in that time: give it more --seconds")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
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
    print_table(table)
    output.print()
