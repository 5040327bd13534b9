"""`slackwater bench`: the same events under several policies, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from slackwater.cli.charts import latency_chart
from slackwater.cli.consoles import output, print_note, print_table
from slackwater.errors import DescriptionError
from slackwater.scheduling.policies import POLICIES
from slackwater_lab.bench.command import Progress as Report
from slackwater_lab.bench.command import run_bench, run_count
from slackwater_lab.bench.flink.installation import MISSING, FlinkInstallation
from slackwater_lab.bench.options import FLINK, FLINK_DURABLE, PEERS, WORKLOADS, BenchOptions
from slackwater_lab.bench.table import results_table, summary_table
from slackwater_lab.workloads.late_wishes import DELAYS

DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(BenchOptions)}


def bench(
    workload: Annotated[str, typer.Argument(help=f"What to run: {', '.join(WORKLOADS)}.")],
    policy: Annotated[
        str,
        typer.Option(
            "--policies",
            "--policy",
            help="What to compare, with commas between; the first is what others are compared "
            f"with. Known: {', '.join((*POLICIES, *PEERS))} (stock: Structured Streaming).",
        ),
    ] = ",".join(DEFAULTS["policies"]),
    queries: Annotated[int, typer.Option(help="Queries at once.")] = DEFAULTS["queries"],
    rate: Annotated[
        float | None,
        typer.Option(
            help=f"Events a second of each (default: {DEFAULTS['rate']:,.0f}).", show_default=False
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            help="Find the rate at which a step for each query and window takes this share of all "
            "slots' time, by measuring what steps cost."
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = DEFAULTS["seconds"],
    warmup: Annotated[
        float, typer.Option(help="Seconds before that, left out of the figures.")
    ] = DEFAULTS["warmup"],
    delay: Annotated[
        str, typer.Option(help=f"How events are delayed: {', '.join(DELAYS)}.")
    ] = DEFAULTS["delay"],
    seed: Annotated[int, typer.Option(help="Same seed, same events.")] = DEFAULTS["seed"],
    distinct: Annotated[
        int, typer.Option(help="How many different pipelines the queries are made from.")
    ] = DEFAULTS["distinct"],
    phase: Annotated[
        Literal["spread", "aligned"],
        typer.Option(help="Whether all windows close at the same instants (aligned)."),
    ] = DEFAULTS["phase"],
    start: Annotated[
        Literal["together", "random"],
        typer.Option(help="Whether inputs start at once, or at random in the first 20 s."),
    ] = DEFAULTS["start"],
    repeat: Annotated[
        int, typer.Option(help="Run all so often, each time with the next seed.")
    ] = DEFAULTS["repeat"],
    data: Annotated[
        Path | None, typer.Option(help="A directory of real trips (TLC Parquet files), for nyt.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Steps at once (default: Spark's parallelism).")
    ] = None,
    durable: Annotated[
        bool, typer.Option(help="Whether the journal waits for the disk.")
    ] = DEFAULTS["durable"],
    memory: Annotated[
        str, typer.Option(help="How much window state may be held in memory.")
    ] = DEFAULTS["memory"],
    sink: Annotated[
        Literal["parquet", "memory"], typer.Option(help="Where results go.")
    ] = DEFAULTS["sink"],
    source: Annotated[
        Literal["generator", "kafka"],
        typer.Option(help="Where events come from: made on Spark, or topics of a Kafka broker."),
    ] = DEFAULTS["source"],
    servers: Annotated[
        str | None, typer.Option(help="A running broker (default: one is started for the run).")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where to keep state meanwhile (default: temporary).")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.")] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Keep every window and the machine's use over time in the results."
        ),
    ] = DEFAULTS["profile"],
    chart: Annotated[Path | None, typer.Option(help="Draw the latencies into this PNG.")] = None,
) -> None:
    """Measure the latency of window results under several policies, on the same events.

    Each policy gets a process of its own, one after the other, and takes the warm-up, the measured
    seconds, and some more for Spark to start. Structured Streaming (stock) is run with two
    triggers, Flink with two watermark intervals, and their better result counts.
    """
    for file in (json, chart):
        if file is not None and not file.resolve().parent.is_dir():
            raise DescriptionError(f"{file} cannot be written: its directory does not exist")
    if data is not None and not data.is_dir():
        raise DescriptionError(f"{data} cannot be read: it is no directory of trips")
    if rate is not None and load is not None:
        raise DescriptionError("rate and load exclude each other: give one of them")
    options = BenchOptions(
        workload=workload,
        policies=_installed(name.strip() for name in policy.split(",") if name.strip()),
        queries=queries,
        rate=DEFAULTS["rate"] if rate is None else rate,
        load=load,
        seconds=seconds,
        warmup=warmup,
        delay=delay,
        seed=seed,
        distinct=distinct,
        phase=phase,
        start=start,
        repeat=repeat,
        data=None if data is None else str(data),
        durable=durable,
        memory=memory,
        sink=sink,
        source=source,
        servers=servers,
        slots=slots,
        directory=None if directory is None else str(directory),
        json=None if json is None else str(json),
        profile=profile or chart is not None,
    )
    with _progress(output, run_count(options)) as report:
        results = run_bench(options, report)
    print_table(results_table(results))
    if repeat > 1:
        print_table(summary_table(results))
    if json is not None:
        print_note(f"results: {json}")
    if chart is not None:
        latency_chart(_latencies(results), chart)
        print_note(f"chart: {chart}")


def _installed(policies: Iterable[str]) -> tuple[str, ...]:
    """Leave out, and say so, what this machine cannot run."""
    asked = tuple(policies)
    missing = [name for name in asked if name in (FLINK, FLINK_DURABLE)]
    if not missing or FlinkInstallation.find() is not None:
        return asked
    print_note(f"{', '.join(missing)} skipped: {MISSING}")
    return tuple(name for name in asked if name not in missing)


def _latencies(results: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Put the latencies of each policy together, over all seeds."""
    together: dict[str, list[float]] = {}
    for result in results:
        together.setdefault(result["policy"], []).extend(result["latencies_ms"])
    return together


@contextmanager
def _progress(console: Console, runs: int) -> Iterator[Report]:
    """Show how far each run is: as bars, or a line for each phase without a terminal."""
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[doing]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress, runs)


class _Lines:
    """Print what is being done, when that changes."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str, share: float) -> None:
        if text != self._last:
            self._last = text
            print_note(text)


class _Bars:
    """Turn "policy: what it does" and the share of all runs into one bar for each run."""

    def __init__(self, progress: Progress, runs: int) -> None:
        self._progress = progress
        self._runs = runs
        self._bars: dict[str, TaskID] = {}

    def __call__(self, text: str, share: float) -> None:
        label, _, doing = text.partition(": ")
        if doing and label not in self._bars:
            self._end_all()
            self._bars[label] = self._progress.add_task(escape(label), total=1.0, doing="")
        if doing:
            done = share * self._runs - (len(self._bars) - 1)
            self._progress.update(self._bars[label], completed=done, doing=doing)
        else:
            self._end_all()

    def _end_all(self) -> None:
        for bar in self._bars.values():
            self._progress.update(bar, completed=1.0, doing="done")
            self._progress.stop_task(bar)
