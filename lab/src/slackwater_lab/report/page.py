"""Write a report as one HTML page that needs nothing else: no scripts, no fonts, no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from slackwater_lab.report.drawing import Plot
from slackwater_lab.report.figure_rows import Cell, figure_rows
from slackwater_lab.report.grouping import Comparison
from slackwater_lab.report.reading import ReportedRun, as_number
from slackwater_lab.report.sections import Missing
from slackwater_lab.report.style import CSS

_READING = """
<dl>
<dt>Latency</dt><dd>The result was out, less the end of its window.</dd>
<dt>Propagation</dt><dd>The result was out, less the arrival of what lets the window close: the
source's watermark; for Flink, the event that its watermark needs to pass the window's end.</dd>
<dt>Ratios</dt><dd>Small figures compare with the first policy: 2.00x is twice as much.</dd>
<dt>Several runs</dt><dd>Figures are means over runs that differ in their seed alone,
with the lowest and the highest below.</dd>
</dl>
"""


def page(
    runs: Sequence[ReportedRun],
    overview: Sequence[Plot | Missing],
    sections: Sequence[tuple[Comparison, Sequence[Plot | Missing]]],
    *,
    written: datetime,
) -> str:
    """Put the page together; everything that comes from a file is escaped."""
    files = list(dict.fromkeys(run.file for run in runs))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>Benchmark report: {_text(', '.join(files))}</title>",
            f"<style>{CSS}</style>\n</head>\n<body>\n<header>\n<h1>Benchmark report</h1>",
            f"<p>Written {written:%Y-%m-%d %H:%M} UTC from {_text(', '.join(files))}. "
            f"{_measured(runs)}</p>\n</header>\n<main>",
            _contents(sections),
            *(_section(place, *section) for place, section in enumerate(sections, 1)),
            '<section id="queries">\n<h2>By number of queries</h2>',
            _plots(overview),
            '</section>\n<section id="machine">\n<h2>Machine</h2>',
            _machines(runs),
            f'</section>\n<section id="reading">\n<h2>How to read this</h2>{_READING}</section>',
            "</main>\n</body>\n</html>\n",
        ]
    )


def _contents(sections: Sequence[tuple[Comparison, Any]]) -> str:
    links = [
        (f"c{place}", comparison.title) for place, (comparison, _) in enumerate(sections, start=1)
    ]
    links += [("queries", "By number of queries"), ("machine", "Machine")]
    items = "".join(f'<li><a href="#{anchor}">{_text(name)}</a></li>' for anchor, name in links)
    return f'<nav aria-label="Contents"><ol>{items}</ol></nav>'


def _section(place: int, comparison: Comparison, plots: Sequence[Plot | Missing]) -> str:
    return "\n".join(
        [
            f'<section id="c{place}">\n<h2>{_text(comparison.title)}</h2>',
            _options(comparison),
            _table(comparison),
            _plots(plots),
            "</section>",
        ]
    )


def _options(comparison: Comparison) -> str:
    known = [(name, value) for name, value in comparison.configuration if value is not None]
    items = (f"<li>{_text(name)} <b>{_option(value)}</b></li>" for name, value in known)
    return f'<ul class="options" aria-label="Options">{"".join(items)}</ul>'


def _option(value: object) -> str:
    number = as_number(value)
    return _text(value if number is None else f"{number:,.10g}")


def _table(comparison: Comparison) -> str:
    heads = "".join(f'<th scope="col">{_text(it.label)}</th>' for it in comparison.columns)
    rows = []
    for name, cells in figure_rows(comparison):
        row = "".join(_cell(cell, ratio=place > 0) for place, cell in enumerate(cells))
        rows.append(f'<tr><th scope="row">{_text(name)}</th>{row}</tr>')
    first = _text(comparison.columns[0].label)
    return (
        '<div class="wide" role="region" tabindex="0" aria-label="Table of all figures"><table>'
        f"<caption>All figures; ratios are to {first}.</caption>"
        f'<thead><tr><th scope="col">figure</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(cell: Cell, *, ratio: bool) -> str:
    """Write a figure, with its ratio behind it and its range over several runs below it."""
    behind = f" <small>{_text(cell.ratio)}</small>" if ratio and cell.ratio else ""
    below = f'<div class="spread">{_text(cell.spread)}</div>' if cell.spread else ""
    return f"<td>{_text(cell.text)}{behind}{below}</td>"


def _plots(plots: Iterable[Plot | Missing]) -> str:
    shown, left_out = [], []
    for plot in plots:
        if isinstance(plot, Missing):
            left_out.append(f"<li>{_text(plot.title)}: {_text(plot.why)}.</li>")
        else:
            shown.append(
                f"<figure><figcaption>{_text(plot.title)}</figcaption>"
                f'<img src="{plot.data_uri()}" alt="{_text(plot.alt)}"></figure>'
            )
    notes = f'<div class="missing"><p>Not shown:</p><ul>{"".join(left_out)}</ul></div>'
    return f'<div class="plots">{"".join(shown)}</div>' + (notes if left_out else "")


def _machines(runs: Sequence[ReportedRun]) -> str:
    """Describe where the figures come from, as the files say: never where the page is made."""
    files: dict[str, list[str]] = {}
    for run in runs:
        described = run.values.get("machine")
        rows = _described(described) if isinstance(described, Mapping) else ""
        files.setdefault(rows, [])
        if run.file not in files[rows]:
            files[rows].append(run.file)
    parts = []
    for rows, names in files.items():
        said = _text(", ".join(names))
        if rows:
            caption = f"<caption>{said}</caption>" if len(files) > 1 else ""
            parts.append(f'<table class="plain">{caption}<tbody>{rows}</tbody></table>')
        else:
            parts.append(f"<p>{said}: the file does not say on which machine it was measured.</p>")
    return "\n".join(parts)


def _described(machine: Mapping[Any, Any]) -> str:
    return "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>'
        for name, value in machine.items()
    )


def _measured(runs: Sequence[ReportedRun]) -> str:
    """Say from when to when was measured, where the files know."""
    moments = sorted(
        str(run.values["measured_at"]) for run in runs if run.values.get("measured_at")
    )
    if len(moments) < len(runs):
        return "Not every result says when it was measured."
    first, last = moments[0], moments[-1]
    return _text(f"Measured {first}." if first == last else f"Measured {first} to {last}.")


def _text(value: object) -> str:
    return escape(str(value), quote=True)
