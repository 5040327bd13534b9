"""`slackwater inject`: drive Kafka topics as a scenario file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from slackwater.cli.consoles import errors, print_table
from slackwater_lab.inject.scenario import read_scenario
from slackwater_lab.inject.sending import Injector, Sent


def inject(
    scenario: Annotated[Path, typer.Argument(help="A TOML file; docs/inject.md tells its fields.")],
    servers: Annotated[
        str | None, typer.Option(help="Where to write, instead of where the scenario says.")
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(help="When to start, instead of the scenario's start: ms since 1970."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was sent as JSON, and nothing else.")
    ] = False,
) -> None:
    """Write a workload's records to Kafka topics, at rates that change as a scenario says.

    The same scenario and start give the same records. It ends when all are written, and tells how
    many each topic got. Progress goes to standard error.
    """
    plan = read_scenario(scenario, servers, start)
    injector = Injector(plan)
    if not as_json:
        topics = f"{len(plan.topics):,} topic{'s' if len(plan.topics) > 1 else ''}"
        pace = f"in {plan.seconds:,.0f} s" if plan.paced else "as fast as can be"
        errors.print(f"[dim]{plan.records:,} records to {topics} {pace}[/dim]")
    last: list[Sent] = []

    def tell(sent: Sent) -> None:
        if not as_json:
            errors.print(f"[dim]{_progress(last[-1] if last else None, sent)}[/dim]")
            last[:] = [sent]

    sent = injector.run(tell)
    if as_json:
        typer.echo(json.dumps(sent.to_dict(), indent=2))
        return
    print_table(_table(sent))


def _progress(before: Sent | None, now: Sent) -> str:
    """Say how many records there are, and how many a second lately."""
    seconds = now.seconds - (before.seconds if before else 0.0)
    fresh = now.records - (before.records if before else 0)
    rate = fresh / seconds if seconds > 0 else 0.0
    return f"{now.seconds:5.0f} s  {now.records:,} records  {rate:,.0f}/s"


def _table(sent: Sent) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("topic", "workload"):
        table.add_column(name, no_wrap=True)
    for name in ("records", "MB", "seconds", "records/s"):
        table.add_column(name, justify="right")
    for topic in sent.topics:
        first, last = topic.first_arrival_ms, topic.last_arrival_ms
        seconds = 0.0 if first is None or last is None else (last - first) / 1_000
        table.add_row(
            escape(topic.topic),
            topic.workload,
            f"{topic.records:,}",
            f"{topic.bytes / 1e6:,.1f}",
            f"{seconds:,.1f}",
            f"{topic.records / seconds:,.0f}" if seconds else "-",
        )
    return table
