"""`slackwater bench`: the same events under several policies, one after the other."""

from __future__ import annotations


def bench() -> None:
    """Compare."""
