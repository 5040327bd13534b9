"""Keep a broker as a child for as long as the process at the other end of stdin lives.

Run as a script, by its path, so that it starts at once: it imports nothing of Slackwater. It obeys
lines: `stop` ends the broker in an orderly way, `kill` like a crash. Where stdin ends without
either, the owner is gone: the broker is stopped, and its temporary directory (if named) removed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import shutil
import signal
import subprocess
import sys
import threading

_PATIENCE_S = 20.0
_OWNER_GONE = ""
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Start the command, and return its exit code once it has ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--temporary")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # the end of stdin says when it is over
    with open(options.log, "ab") as log:
        child = subprocess.Popen(
            options.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_prepare_child,
        )
    orders: list[str] = []
    threading.Thread(target=_obey, args=(child, orders), daemon=True).start()
    code = child.wait()
    if orders == [_OWNER_GONE] and options.temporary:
        shutil.rmtree(options.temporary, ignore_errors=True)
    return code


def _obey(child: subprocess.Popen[bytes], orders: list[str]) -> None:
    orders.append(sys.stdin.readline().strip())
    if orders[0] == "kill":
        child.kill()
        return
    child.terminate()
    try:
        child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()


def _prepare_child() -> None:
    for restored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(restored, signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError):  # Linux: end even if the keeper is killed
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
