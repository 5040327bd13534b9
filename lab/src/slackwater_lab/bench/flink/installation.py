"""Where `make flink` has put Flink, if it has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MISSING: Final = "not installed here (`make flink` installs it)"
HOME_VARIABLE: Final = "SLACKWATER_FLINK"
_CHECKOUT: Final = Path(__file__).parents[5]  # where the package is run from its source
_LIBRARIES: Final = ("flink-dist-*.jar", "log4j-api-*.jar", "log4j-core-*.jar", "log4j-slf4j-*.jar")
_LOGGING: Final = Path(__file__).parent / "java" / "log4j2.properties"
# The heap is that of Spark's driver. Two cores suit the parallel collector; G1 gave the same means.
_JVM: Final = ("-Xmx2g", "-XX:+UseParallelGC")


@dataclass(frozen=True)
class FlinkInstallation:
    """Know Flink's libraries, and the compiled job."""

    libraries: tuple[Path, ...]
    classes: Path

    @classmethod
    def find(cls) -> FlinkInstallation | None:
        """Look where the environment says, here, and in the checkout; None where there is none."""
        named = os.environ.get(HOME_VARIABLE)
        homes = [Path(named)] if named else [Path.cwd() / ".flink", _CHECKOUT / ".flink"]
        return next((found for home in homes if (found := cls.at(home)) is not None), None)

    @classmethod
    def at(cls, home: Path) -> FlinkInstallation | None:
        """Look into one directory, which is a virtual environment with compiled classes in it."""
        found = [
            jar
            for pattern in _LIBRARIES
            for jar in home.glob(f"lib/python*/site-packages/pyflink/lib/{pattern}")
        ]
        complete = len(found) >= len(_LIBRARIES) and (home / "classes" / "YsbJob.class").exists()
        return cls(tuple(found), home / "classes") if complete else None

    @property
    def version(self) -> str:
        """Return Flink's version, as its library is named."""
        return self.libraries[0].stem.removeprefix("flink-dist-")

    def command(self, main: str, *arguments: str) -> list[str]:
        """Write the command that runs one of the classes."""
        java_home = os.environ.get("JAVA_HOME")
        java = str(Path(java_home) / "bin" / "java") if java_home else "java"
        classpath = os.pathsep.join(map(str, (self.classes, *self.libraries)))
        logging = f"-Dlog4j.configurationFile={_LOGGING}"
        return [java, *_JVM, logging, "-cp", classpath, main, *arguments]
