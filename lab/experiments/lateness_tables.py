"""Print the tables of docs/lateness.md: `python lab/experiments/lateness_tables.py`."""

from __future__ import annotations

from lateness_trials import (
    BOUNDS,
    MOST_EXECUTIONS,
    SHAPES,
    fewest_executions,
    run_cover,
    run_online,
)

KEPT = (0.99, 0.997, 0.999)  # shares of late events that a window is kept for
SHARES = (0.9, 0.99, 0.999)


def executions_table() -> str:
    """Write how many executions each trigger needs, as Markdown."""
    lines = [
        "| lateness | bound | staleness trigger | stalest span | every delta t | every n events |",
        "|---|---|---|---|---|---|",
    ]
    for name in SHAPES:
        for bound in BOUNDS:
            found = fewest_executions(name, bound)
            lines.append(
                f"| {name} | {bound:g} | {found.ours} | {found.stalest:.4f} "
                f"| {_compared(found.ours, found.by_time)} "
                f"| {_compared(found.ours, found.by_events)} |"
            )
    return "\n".join(lines)


def kept_table() -> str:
    """Write how the comparison depends on how long windows are kept, as Markdown."""
    lines = [
        "| log-normal, kept for | staleness trigger | every delta t | every n events |",
        "|---|---|---|---|",
    ]
    for covered in KEPT:
        found = fewest_executions("lognormal", 0.05, covered)
        windows = SHAPES["lognormal"].quantile(covered) / 1_000
        lines.append(
            f"| {100 * covered:g} % of late events ({windows:.1f} windows) | {found.ours} "
            f"| {_compared(found.ours, found.by_time)} "
            f"| {_compared(found.ours, found.by_events)} |"
        )
    return "\n".join(lines)


def online_table() -> str:
    """Write how the trigger does as it learns, as Markdown."""
    lines = [
        "| lateness | bound | executions a window | fewest, known in advance | stalest span |",
        "|---|---|---|---|---|",
    ]
    for name in SHAPES:
        for bound in BOUNDS:
            found = run_online(name, bound)
            lines.append(
                f"| {name} | {bound:g} | {found.executions:.1f} | {found.fewest:.1f} "
                f"| {found.stalest:.4f} |"
            )
    return "\n".join(lines)


def cover_table() -> str:
    """Write which share of events learned bounds cover, as Markdown."""
    lines = [
        "| lateness | share asked | covered | covered 16 windows after lateness doubled |",
        "|---|---|---|---|",
    ]
    for name in SHAPES:
        for share in SHARES:
            found = run_cover(name, share)
            lines.append(
                f"| {name} | {100 * share:g} % | {_range(found.covered)} "
                f"| {_range(found.doubled)} |"
            )
    return "\n".join(lines)


def _range(shares: tuple[float, float, float]) -> str:
    least, mean, most = (100 * share for share in shares)
    return f"{mean:.2f} % ({least:.2f} to {most:.2f})"


def _compared(ours: int, theirs: int | None) -> str:
    if theirs is None:
        return f"more than {MOST_EXECUTIONS}"
    return f"{theirs} ({100 * ours / theirs:.0f} %)"


def main() -> None:
    """Print all tables."""
    print("Executions of a window that keep a bound on staleness (ours as a share of theirs)\n")
    print(executions_table(), end="\n\n")
    print("The same at a bound of 0.05, for windows kept shorter and longer\n")
    print(kept_table(), end="\n\n")
    print("The trigger as it learns, looking 500 times at each of ten windows\n")
    print(online_table(), end="\n\n")
    print("Predictive cleanup: events covered by the bound at 95 % confidence, in ten runs\n")
    print(cover_table())


if __name__ == "__main__":
    main()
