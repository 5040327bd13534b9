"""From result files to a report on disk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from slackwater_lab.report.drawing import Plot
from slackwater_lab.report.grouping import comparisons
from slackwater_lab.report.page import page
from slackwater_lab.report.reading import ReportError, read_runs
from slackwater_lab.report.sections import plots_of, plots_of_all


def write_report(
    files: Sequence[Path],
    output: Path,
    *,
    pictures: Path | None = None,
    written: datetime | None = None,
) -> list[Path]:
    """Write the page, and each plot as a PNG if asked to; return all that was written."""
    runs = read_runs(files)
    compared = comparisons(runs)
    sections = [(it, plots_of(it, number)) for number, it in enumerate(compared, start=1)]
    overview = plots_of_all(compared)
    text = page(runs, overview, sections, written=written or datetime.now(UTC))
    found = [*overview, *(plot for _, plots in sections for plot in plots)]
    outputs = {output: text.encode(errors="backslashreplace")}
    if pictures is not None:
        outputs |= {pictures / f"{it.name}.png": it.png() for it in found if isinstance(it, Plot)}
    try:
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
        for path, content in outputs.items():
            path.write_bytes(content)
    except OSError as error:
        raise ReportError(f"{error.filename} cannot be written: {error.strerror}") from error
    return list(outputs)
