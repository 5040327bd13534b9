"""Where the commands write: results to stdout, problems to stderr."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 200

output = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

logger = logging.getLogger("slackwater")


def show_logs(*, verbose: bool) -> logging.Handler:
    """Show Slackwater's own log messages; return the handler that does."""
    handler = RichHandler(console=errors, show_time=False, show_path=False, markup=False)
    handler.setLevel(logging.INFO if verbose else logging.WARNING)
    if verbose:
        logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    return handler


def hide_logs(handler: logging.Handler) -> None:
    """Undo `show_logs`."""
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def print_error(message: str) -> None:
    """Print a problem as one red line; what is quoted below the first stays as it is."""
    first, _, quoted = message.strip().partition("\n")
    errors.print(Text.assemble(("error: ", "bold red"), (first, "red")), soft_wrap=True)
    if quoted:
        errors.print(Text(quoted, style="dim"), soft_wrap=True)


def print_note(message: str) -> None:
    """Print something to know that is not a result."""
    output.print(f"[dim]{escape(message)}[/dim]", soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table, without squeezing it where no terminal sets its width."""
    console = output if output.is_terminal else Console(width=FILE_WIDTH, highlight=False)
    console.print(table)


def show_time(moment_ms: float) -> str:
    """Write a moment within the day, UTC.

    >>> show_time(3_723_042)
    '01:02:03.042'
    """
    seconds, ms = divmod(int(moment_ms), 1_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours % 24:02d}:{minute:02d}:{second:02d}.{ms:03d}"


def show_latency(latency_ms: float | None) -> str:
    """Write a latency the way people read it.

    >>> show_latency(4.2), show_latency(187.4), show_latency(4690.0), show_latency(None)
    ('4.2 ms', '187 ms', '4.69 s', '-')
    """
    if latency_ms is None:
        return "-"
    if latency_ms >= 1_000:
        return f"{latency_ms / 1_000:.2f} s"
    return f"{latency_ms:.0f} ms" if latency_ms >= 10 else f"{latency_ms:.1f} ms"
