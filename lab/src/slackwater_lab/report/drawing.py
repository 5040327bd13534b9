"""How every plot of a report looks: told apart without colour, readable on light and on dark."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

# Every policy differs from the others in its line and its marker or hatch, and in colour besides.
COLOURS: Final = ("#3b82c4", "#d9722e", "#2fa37c", "#b86fb0", "#b98a00", "#7a7f87")
LINES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
HATCHES: Final = ("", "///", "...", "xx", "\\\\\\", "++")

_INK: Final = "#16191d"  # in SVG replaced by the colour that suits the background
_LIGHT, _DARK = _INK, "#e8e6e1"
_STYLE: Final[Any] = {  # matplotlib's own type for this is a list of all its keys
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "slackwater",
    "text.parse_math": False,  # a name with dollar signs is a name
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.alpha": 0.18,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "grid.color"), _INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), _INK),
}
_DPI: Final = 144
_MOST_LABEL: Final = 60


@dataclass(frozen=True)
class Plot:
    """Hold a finished plot. `alt` says what there is to see in it, with its figures."""

    name: str
    title: str
    alt: str
    figure: Figure

    def data_uri(self) -> str:
        """Draw the plot for a page, as an address that holds it whole."""
        svg = _themed(_saved(self.figure, format="svg", transparent=True, metadata={"Date": None}))
        return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"

    def png(self) -> bytes:
        """Draw the plot to stand alone, with its title."""
        heading = self.figure.suptitle(self.title, x=0.01, ha="left")
        try:
            return _saved(self.figure, format="png", dpi=_DPI, facecolor="white")
        finally:
            heading.remove()


def draw(
    name: str, title: str, alt: str, paint: Callable[[Axes], None], *, height: float = 3.6
) -> Plot:
    """Let `paint` fill the axes of a new plot."""
    with mpl.rc_context():
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(7.6, height), layout="constrained")
        paint(figure.add_subplot())
    return Plot(name, title, alt, figure)


def line_style(place: int) -> dict[str, Any]:
    """Return the colour and the dashes of the policy at a place."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": LINES[place % len(LINES)],
        "linewidth": 1.8,
    }


def legend_above(axes: Axes) -> None:
    """Name the lines where they cannot run through their names."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.3)


def write_plainly(axis: Axis) -> None:
    """Write 1, 2, 5, 10, 20, ... on an axis that is logarithmic, and no powers of ten."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(plain_number)
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float, place: float) -> str:
    """Write the number at a tick as people do, on logarithmic axes too.

    >>> plain_number(0.5, 0), plain_number(20_000.0, 1)
    ('0.5', '20,000')
    """
    return f"{value:,.10g}"


def shortened(label: str) -> str:
    """Keep a long name from pushing the plot aside."""
    return label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…"


def _saved(figure: Figure, **how: Any) -> bytes:
    file = BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name may use signs that the font lacks
        mpl.rcParams.update(_STYLE)
        figure.savefig(file, **how)
    return file.getvalue()


def _themed(svg: bytes) -> bytes:
    """Let text and axes take the colour that the reader's theme asks for."""
    style = (
        f"<style>svg{{color:{_LIGHT}}}"
        f"@media (prefers-color-scheme:dark){{svg{{color:{_DARK}}}}}</style>"
    )
    text = svg.decode().replace(_INK, "currentColor")
    head, tag, rest = text.partition("<defs>")
    themed = f"{head}{style.replace(_INK, _LIGHT)}{tag}{rest}"
    return themed.encode()
