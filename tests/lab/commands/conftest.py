"""Fixtures for the laboratory's commands: the runner of all commands."""

from __future__ import annotations

from tests.cli.conftest import invoke

__all__ = ["invoke"]
