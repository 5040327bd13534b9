"""`slackwater report`: benchmark results as one page to read and to pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.consoles import print_note
from slackwater_lab.report.writing import write_report


def report(
    files: Annotated[list[Path], typer.Argument(help="What slackwater bench --json wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path(
        "report.html"
    ),
    png: Annotated[
        Path | None, typer.Option(help="Write each plot as a PNG into this directory, too.")
    ] = None,
) -> None:
    """Write benchmark results as one HTML page with plots and tables, which needs no network.

    Results of several files are put together: runs with the same options are compared, and means
    are drawn against the number of queries. What a file does not hold is left out, and the page
    says why.
    """
    written = write_report(files, output, pictures=png)
    print_note(f"report: {output}")
    if png is not None:
        print_note(f"plots: {len(written) - 1} in {png}")
