"""Fetch jars from Maven Central with the Ivy that PySpark brings along, and keep them for good."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark

from slackwater.errors import DescriptionError, MissingRequirementError

CACHE_VARIABLE: Final = "SLACKWATER_CACHE"
REPOSITORY_VARIABLE: Final = "SLACKWATER_MAVEN"
_CENTRAL: Final = "https://repo1.maven.org/maven2/"
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True)
class Coordinate:
    """Name a module as Maven does."""

    group: str
    name: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read `group:name:version`.

        >>> Coordinate.parse("org.apache.kafka:kafka_2.13:4.3.1").version
        '4.3.1'
        """
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            raise DescriptionError(f"{text!r} is no Maven coordinate: write group:name:version")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"


def jars(*coordinates: str) -> tuple[Path, ...]:
    """Return the jars of modules and of all that they need, fetched once per machine.

    They are kept below `SLACKWATER_CACHE` (by default the user's cache directory) and come from
    Maven Central, or from the repository that `SLACKWATER_MAVEN` names.
    """
    wanted = [Coordinate.parse(text) for text in coordinates]
    home = cache_directory() / "jars"
    kept = home / "+".join(f"{each.name}-{each.version}" for each in wanted)
    if not kept.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching the same
            if not kept.is_dir():
                _fetch(wanted, home, kept)
    return tuple(sorted(kept.glob("*.jar")))


def cache_directory() -> Path:
    """Return where Slackwater keeps what it has downloaded."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater"


def java_command() -> str:
    """Return the java of JAVA_HOME, or else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise MissingRequirementError(
            "no java found: install Java 17 or 21, or set JAVA_HOME to where it is"
        )
    return java


def _fetch(wanted: Sequence[Coordinate], home: Path, kept: Path) -> None:
    """Resolve into a directory beside the final one, which then appears complete or not at all."""
    scratch = Path(tempfile.mkdtemp(prefix=".fetching-", dir=home))
    try:
        (scratch / "ivy.xml").write_text(_module(wanted))
        (scratch / "settings.xml").write_text(_settings())
        command = [
            *(java_command(), "-jar", str(_ivy()), "-warn"),
            *("-settings", str(scratch / "settings.xml"), "-ivy", str(scratch / "ivy.xml")),
            *("-cache", str(home / ".ivy"), "-confs", "default", "-types", "jar", "bundle"),
            *("-retrieve", str(scratch / "lib" / "[artifact]-[revision].[ext]")),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode != 0 or not (scratch / "lib").is_dir():
            raise MissingRequirementError(_explained(wanted, done.stdout + done.stderr))
        (scratch / "lib").rename(kept)
    except subprocess.TimeoutExpired as error:
        raise MissingRequirementError(_explained(wanted, "it took too long")) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _ivy() -> Path:
    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise MissingRequirementError(
            "this PySpark brings no Ivy to fetch jars with: use the one from PyPI"
        )
    return found[-1]


def _module(wanted: Sequence[Coordinate]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(each.group)} name={quoteattr(each.name)} "
        f'rev={quoteattr(each.version)} conf="default->default"/>'
        for each in wanted
    )
    return (
        '<ivy-module version="2.0"><info organisation="slackwater" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _settings() -> str:
    root = os.environ.get(REPOSITORY_VARIABLE) or _CENTRAL
    return (
        '<ivysettings><settings defaultResolver="maven"/><resolvers>'
        f'<ibiblio name="maven" m2compatible="true" root={quoteattr(root)}/>'
        "</resolvers></ivysettings>"
    )


def _explained(wanted: Sequence[Coordinate], output: str) -> str:
    names = ", ".join(map(str, wanted))
    lines = [line.strip() for line in output.splitlines() if line.strip().strip(".")]
    told = next((line for line in lines if "Exception" in line or "not found" in line), "")
    return (
        f"the jars of {names} cannot be fetched from Maven Central ({told or 'no reason given'}): "
        f"let this machine reach it, or name a mirror in {REPOSITORY_VARIABLE}"
    )
