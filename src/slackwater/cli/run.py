"""`slackwater run`: deploy what a Python file describes, and run it until stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.app_files import load_deploy
from slackwater.cli.consoles import output, print_note
from slackwater.cli.starting import spark_session
from slackwater.errors import QuarantinedError, SlackwaterError
from slackwater.runtime.reports import QueryReport
from slackwater.runtime.runtime import Runtime
from slackwater.scheduling.policies import POLICIES, policy_named


def run(
    file: Annotated[Path, typer.Argument(help="A Python file that defines deploy(rt, spark).")],
    journal: Annotated[
        Path | None,
        typer.Option(help="Where to keep state, to go on from there (default: a temporary one)."),
    ] = None,
    policy: Annotated[
        str, typer.Option(help=f"Which queries run next: {', '.join(POLICIES)}.")
    ] = "klink",
    slots: Annotated[
        int | None, typer.Option(help="Steps at once (default: Spark's parallelism).")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so long (default: on Ctrl-C).")
    ] = None,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*]",
) -> None:
    """Run an app from a Python file until Ctrl-C, the end of its inputs, or for --seconds.

    The file describes its app as always, and defines

        def deploy(rt: sw.Runtime, spark: SparkSession) -> None:

    which calls rt.deploy(app, name, ...) once for each deployment. Static tables that transforms
    join come from the session it is given. See examples/ads.py.
    """
    chosen = policy_named(policy)
    deploy = load_deploy(file)
    with spark_session(master) as spark:
        with Runtime(spark, policy=chosen, journal=journal, slots=slots) as rt:
            with output.status("planning ...") if output.is_terminal else nullcontext():
                deploy(rt, spark)
            names = [query.name for query in rt.queries()]
            if not names:
                raise SlackwaterError(
                    f"{file} deploys no query: let its deploy(rt, spark) call rt.deploy(app, ...)"
                )
            _announce(file, names, rt, temporary=journal is None)
            failed = None
            try:
                with _ended_by_sigterm(rt.stop):
                    rt.run(seconds=seconds)
            except QuarantinedError as error:
                failed = error
            queries = rt.queries()
        _print_end(queries, None if journal is None else rt.directory)
        if failed is not None:
            raise failed


def _announce(file: Path, names: list[str], rt: Runtime, *, temporary: bool) -> None:
    what = f"{len(names)} queries" if len(names) > 1 else f"query {names[0]}"
    print_note(f"running {what} of {file}; Ctrl-C stops")
    if temporary:
        print_note("no --journal is given: nothing survives this run")
    else:
        print_note(f"journal: {rt.directory} (slackwater status {rt.directory})")


def _print_end(queries: list[QueryReport], journal: Path | None) -> None:
    for query in queries:
        if query.quarantined is not None:
            output.print(
                f"quarantined: {query.name}: {query.quarantined}",
                style="red",
                markup=False,
                soft_wrap=True,
            )
    records = sum(query.records for query in queries)
    panes = sum(query.panes for query in queries)
    where = "its journal is removed" if journal is None else f"its journal is in {journal}"
    output.print(
        f"stopped after {records:,} records and {panes:,} panes in all; {where}",
        markup=False,
        soft_wrap=True,
    )


@contextmanager
def _ended_by_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM, which service managers send, end the run as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda *_: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
