"""`slackwater status`: how the queries of a journal stand, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from slackwater.cli.consoles import output, print_table
from slackwater.cli.journal_report import JournalReport, QueryStatus, read_journal
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.runtime.live import LiveInput

COUNTED = ("records", "rejected", "too late", "panes", "rows out")
MOST_LAGS = 4  # shown of a query; --json has them all
MOST_WINDOWS = 40  # shown; --json has them all


def status(
    journal: Annotated[
        Path, typer.Argument(help="The directory given to Runtime(journal=...) or run --journal.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show queries, offsets, watermarks and windows (why is each kept?) of a journal."""
    report = read_journal(journal)
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
        return
    _print_head(report)
    if report.queries:
        for table in (_places_table(report.queries), _counters_table(report.queries)):
            output.print()
            print_table(table)
        _print_inputs(report.inputs)
        _print_windows(report.queries)
        _print_kept(report.queries)
        _print_bounds(report.queries)
        _print_trouble(report)


def _print_head(report: JournalReport) -> None:
    use = "not in use" if report.process is None else f"in use by process {report.process}"
    records = sum(query.counters.records for query in report.queries)
    panes = sum(query.counters.panes for query in report.queries)
    output.print(f"[bold]{escape(report.directory)}[/bold]: {use}", soft_wrap=True)
    output.print(
        f"queries {len(report.queries):,}, steps {report.steps:,}, records {records:,}, "
        f"panes {panes:,}"
    )


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in texts:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", min_width=max(map(len, name.split())))
    return table


def _places_table(queries: Sequence[QueryStatus]) -> Table:
    """Say where each query is."""
    table = _table(("query", "windows", "watermark"), ("plan", "open", "state rows"))
    for query in queries:
        table.add_row(
            escape(query.name),
            query.windows,
            _moment_text(query.watermark_ms),
            f"{sum(piece.records for piece in query.pending):,}" if query.pending else "-",
            f"{len(query.open_windows):,}",
            f"{query.state_rows:,}",
            style="red" if query.quarantined is not None else "",
        )
    return table


def _counters_table(queries: Sequence[QueryStatus]) -> Table:
    """Say what became of each query's records."""
    table = _table(("query",), ("offsets", *COUNTED))
    for query in queries:
        counters = query.counters
        table.add_row(
            escape(query.name),
            _offsets_text(query),
            f"{counters.records:,}",
            _warned(counters.rejected),
            _warned(counters.too_late_rows),
            f"{counters.panes:,}",
            f"{counters.rows_out:,}",
            style="red" if query.quarantined is not None else "",
        )
    return table


def _print_inputs(inputs: Sequence[LiveInput]) -> None:
    """Say what a running process sees arrive."""
    if not inputs:
        return
    table = _table(("input of",), ("events/s", "queued", "lost"))
    table.add_column("lag", no_wrap=True)
    for each in inputs:
        rate = "-" if each.arrivals_per_s is None else f"{each.arrivals_per_s:,.0f}"
        behind = [f"{place} {lag:,}" for place, lag in each.lags.items() if lag]
        shown = ", ".join(behind[:MOST_LAGS]) + (", ..." if len(behind) > MOST_LAGS else "")
        lag = shown or ("none" if each.lags else "-")
        table.add_row(escape(each.query), rate, f"{each.queued:,}", _warned(each.lost), escape(lag))
    output.print()
    print_table(table)
    for each in inputs:
        if each.waits_for is not None:
            waits = f"waits: {each.query}: {each.waits_for}"
            output.print(f"[yellow]{escape(waits)}[/yellow]", soft_wrap=True)


def _print_windows(queries: Sequence[QueryStatus]) -> None:
    windows = [(query.name, window) for query in queries for window in query.open_windows]
    if not windows:
        return
    table = _table(("open windows of", "from", "to"), ("panes", "state rows"))
    for name, window in windows[:MOST_WINDOWS]:
        start, end = _moment_text(window.start_ms), _moment_text(window.end_ms)
        table.add_row(escape(name), start, end, f"{window.panes:,}", f"{window.state_rows:,}")
    output.print()
    print_table(table)
    if len(windows) > MOST_WINDOWS:
        output.print(f"[dim]... and {len(windows) - MOST_WINDOWS:,} more (--json)[/dim]")


def _print_kept(queries: Sequence[QueryStatus]) -> None:
    """Say why windows that have ended are kept."""
    kept = [(query.name, window) for query in queries for window in query.kept_windows]
    if kept:
        table = _table(("kept windows of", "until", "for"), ("late", "waiting", "next pane at"))
        for name, window in kept[:MOST_WINDOWS]:
            table.add_row(
                f"{escape(name)} to {_moment_text(window.end_ms)}",
                _moment_text(window.kept_until_ms),
                window.why,
                f"{window.late_events:,}",
                f"{window.waiting:,}",
                "late event"
                if window.next_execution_ms is None
                else _moment_text(window.next_execution_ms),
            )
        output.print()
        print_table(table)
    lines = [(query.name, query.lateness) for query in queries if query.lateness is not None]
    if lines:
        output.print()
    for name, text in lines:
        output.print(f"late events of {escape(name)}: {escape(text)}", soft_wrap=True)


def _print_bounds(queries: Sequence[QueryStatus]) -> None:
    """Say of queries with an error wish what was asked for, and how often it is kept."""
    bounded = [(query.name, query.bounds) for query in queries if query.bounds is not None]
    if not bounded:
        return
    table = _table(("bounds of", "asked"), ("sampled", "audited", "held", "caution"))
    for name, it in bounded:
        of = "the total"
        if it.groups is not None:
            rates = f"{it.own_rates} rates" if it.own_rates else "one rate"
            of = f"groups of {it.groups:.2%} or more, {rates}"
        table.add_row(
            escape(name),
            f"{it.error:.1%} at {it.confidence:.1%}, {of}",
            "all so far" if it.sampled_share is None else f"{it.sampled_share:.1%}",
            f"{it.audited:,}",
            "-" if it.coverage is None else f"{it.coverage:.1%}",
            f"{it.caution:.2f}",
        )
    output.print()
    print_table(table)
    for name, it in bounded:
        if it.doubted:
            doubt = (
                f"doubted: {name}: bounds held in {it.held:,} of {it.audited:,} audited results, "
                f"where {it.confidence:.1%} was asked for: rows say met = false until they hold "
                "again; do late events differ from others?"
            )
            output.print(f"[yellow]{escape(doubt)}[/yellow]", soft_wrap=True)


def _print_trouble(report: JournalReport) -> None:
    """Say what needs an eye: quarantined queries, steps to run again, dead letters."""
    lines = [
        f"[red]quarantined: {escape(query.name)}: {escape(query.quarantined)}[/red]"
        for query in report.queries
        if query.quarantined is not None
    ]
    pending = sum(1 for query in report.queries if query.pending)
    if pending:
        what = "running now" if report.process is not None else "run again on the next start"
        lines.append(f"planned and not committed: steps of {pending:,} queries, {what}")
    lines += [
        f"dead letters: {escape(filed.query)}: {filed.count:,} {filed.reason}"
        for filed in report.dead_letters
    ]
    if report.steps_with_letters_to_file:
        lines.append(
            f"dead letters of {report.steps_with_letters_to_file:,} steps are still to be filed"
        )
    if lines:
        output.print()
    for line in lines:
        output.print(line, soft_wrap=True)


def _offsets_text(query: QueryStatus) -> str:
    """Write the offset of the one partition, or how many partitions and how far they are apart."""
    nexts = [offset.next for offset in query.offsets]
    if len(nexts) <= 1:
        return f"{nexts[0]:,}" if nexts else "-"
    return f"{len(nexts)} x {min(nexts):,}..{max(nexts):,}"


def _moment_text(moment_ms: int | None) -> str:
    if moment_ms is None:
        return "none yet"
    if moment_ms >= END_OF_TIME_MS:
        return "ended"
    moment = datetime.fromtimestamp(moment_ms / 1_000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment_ms % 1_000:03d}"


def _warned(count: int) -> str:
    return f"[yellow]{count:,}[/yellow]" if count else "0"
