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
from matplotlib.figure import Figure

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
    "axes.titlelocation": "left",
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
    svg: bytes
    png: bytes

    @property
    def data_uri(self) -> str:
        """Return the plot as an address that holds it whole."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}"


def draw(
    name: str,
    title: str,
    alt: str,
    paint: Callable[[Axes], None],
    *,
    height: float = 3.6,
) -> Plot:
    """Let `paint` fill the axes, and return what came of it as SVG and PNG."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name may use signs that the font lacks
        figure = Figure(figsize=(7.6, height), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        svg, png = BytesIO(), BytesIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        axes.set_title(title)  # on the page the title stands above the picture
        figure.savefig(png, format="png", dpi=_DPI, facecolor="white")
    return Plot(name, title, alt, _themed(svg.getvalue()), png.getvalue())


def line_style(place: int) -> dict[str, Any]:
    """Return the colour and the dashes of the policy at a place."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": LINES[place % len(LINES)],
        "linewidth": 1.8,
    }


def shortened(label: str) -> str:
    """Keep a long name from pushing the plot aside."""
    return label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…"


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
