"""Where the `slackwater` command begins: the core is installed without what commands need."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from slackwater.cli.main import app
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("slackwater"):
            raise
        print(
            f"error: the command line needs {missing.name}: pip install 'slackwater[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    app()
