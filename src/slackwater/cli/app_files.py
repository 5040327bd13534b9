"""Load the file that `slackwater run` is given, and say in one line what is wrong with it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from slackwater.errors import SlackwaterError
from slackwater.runtime.runtime import Runtime

Deploy = Callable[[Runtime, SparkSession], object]

CONVENTION = "def deploy(rt, spark): rt.deploy(app, 'name', events=...)"

_MODULE = "slackwater_app"


class AppFileError(SlackwaterError):
    """Report a file that cannot be run as an app: mend it at the line named."""


def load_deploy(file: Path) -> Deploy:
    """Import a Python file and return its `deploy(rt, spark)`."""
    if not file.is_file():
        what = "is no file" if file.exists() else "does not exist"
        raise AppFileError(f"{file} {what}: name a Python file that defines {CONVENTION}")
    deploy = getattr(_imported(file), "deploy", None)
    if not callable(deploy):
        raise AppFileError(f"{file} defines no deploy function: add {CONVENTION}")
    try:
        inspect.signature(deploy).bind(None, None)
    except TypeError:
        found = inspect.signature(deploy)
        raise AppFileError(
            f"{file} defines deploy{found}, which cannot take a runtime and a Spark session: "
            f"write {CONVENTION}"
        ) from None

    def explained(rt: Runtime, spark: SparkSession) -> None:
        try:
            deploy(rt, spark)
        except SlackwaterError:
            raise
        except Exception as error:
            raise _in_file(file, error) from error

    return explained


def _imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, file.resolve())
    if spec is None or spec.loader is None:
        raise AppFileError(f"{file} is not a Python file: name one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    sys.path.insert(
        0, str(file.resolve().parent)
    )  # as for a script: its neighbours can be imported
    try:
        spec.loader.exec_module(module)
    except SlackwaterError:
        raise
    except Exception as error:
        raise _in_file(file, error) from error
    # Spark's workers cannot import the file: its functions travel to them whole.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _in_file(file: Path, error: Exception) -> AppFileError:
    """Say which line of the file an error came from."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    for place in traceback.extract_tb(error.__traceback__):
        if Path(place.filename) == file.resolve():
            line = place.lineno
    at = str(file) if line is None else f"{file}, line {line}"
    said = str(error).strip().splitlines() or ["no message"]
    return AppFileError(f"{at}: {type(error).__name__}: {said[0]} (--debug shows more)")
