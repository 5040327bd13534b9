"""A process that is started, killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


class Incarnations:
    """Start a script, kill it, start it again."""

    def __init__(self, script: Path, *arguments: str) -> None:
        self._command = [sys.executable, str(script), *arguments]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill_after(self, lines: int, delay_s: float) -> bool:
        """Kill the whole group after so many lines and a moment; False if it finished first."""
        process = self.start()
        assert process.stdout is not None
        for seen, line in enumerate(process.stdout, start=1):
            if line.startswith("finished"):
                process.wait()
                return False
            if seen >= lines:
                break
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True

    def finish(self, after: int = 0, act: Callable[[], None] = lambda: None) -> str:
        """Let it run to its end, and do something after so many lines; return what it logged."""
        process = self.start()
        assert process.stdout is not None
        for seen, _ in enumerate(process.stdout, start=1):
            if seen >= after:
                break
        act()
        out, err = process.communicate(timeout=500)
        assert process.returncode == 0, err
        assert "finished" in out
        return err
