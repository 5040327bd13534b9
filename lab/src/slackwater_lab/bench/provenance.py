"""Say where and when something was measured: figures mean little without."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from slackwater_lab.bench.flink.installation import FlinkInstallation


def provenance() -> dict[str, Any]:
    """Describe this machine and this moment, as JSON values."""
    return {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}


@cache
def machine() -> dict[str, str]:
    """Describe this machine and what is installed on it; what cannot be found out is left out."""
    flink = FlinkInstallation.find()
    described = {
        "processor": _processor(),
        "cores": str(psutil.cpu_count() or "") or None,
        "memory": f"{psutil.virtual_memory().total / 1024**3:.1f} GiB",
        "system": platform.platform(),
        "Python": platform.python_version(),
        "Java": _java(),
        "PySpark": _installed("pyspark"),
        "Flink": None if flink is None else flink.version,
        "Slackwater": _installed("slackwater"),
    }
    return {name: value for name, value in described.items() if value}


def _processor() -> str | None:
    """Ask Linux, which knows the model; Python's own answer is often empty."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', said.stderr)
    return found.group(1) if found else None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
