"""What went wrong, in one line: the user's own error with its file and line, not Spark's pages.

A function that fails on Spark comes back as text: the trace of a Python worker, inside a Java
exception, inside others. Here the essence is found in such texts, and in the traces of errors that
were raised in the driver. Nothing here calls Spark: what it said is all that is looked at.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from slackwater.errors import SlackwaterError

_MOST = 600  # characters of a message
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = re.compile(r"[/\\]lib[/\\]python3\.\d+[/\\](?!(site|dist)-packages[/\\])")
# Packages through which a user's function is called, or that it calls: never the place to mend.
_MACHINERY = re.compile(
    r"(^|[/\\])(pyspark|pyspark\.zip|py4j|cloudpickle|pandas|pyarrow|numpy)[/\\]"
)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_FRAME = re.compile(r'^\s*File "(?P<file>.+?)", line (?P<line>\d+), in (?P<name>.+?)\s*$')
_TRACE = "Traceback (most recent call last):"
_JAVA_CAUSE = re.compile(r"^(?:Caused by: |: |)((?:[a-z_$][\w$]*\.){2,}[A-Z][\w$]*)(?:: (.*))?$")
_LOST_TASK = re.compile(r"Lost task .*?\(TID \d+\)(?: \(.*?\))?: (.*)$")
_WRAPPERS = ("Exception thrown in awaitResult", "Job aborted", "Task failed while writing")
_SPARK_MODULES = re.compile(r"^(?:pyspark\.errors\.exceptions\.\w+|builtins)\.")
_SQL_STATE = re.compile(r"[.;]? ?SQLSTATE: \w{5}(?=[\s;.]|$).*$")
_SQL_CONTEXT = re.compile(r"^== SQL.*==\n(?P<sql>.*)\n(?P<marks>[ ^]*\^)", re.MULTILINE)
_FRAME_CONTEXT = re.compile(
    r'^== DataFrame ==\n(?P<called>".*") was called from\n(?P<site>.*)', re.M
)
_DIGITS = tuple("0123456789")  # a line of Python ends a call site; Java's end with a bracket


class Frame(NamedTuple):
    """Name one line of Python on the way to an error."""

    file: str
    line: int
    name: str


def explain(error: BaseException) -> str:
    """Say what an error is, where in the user's code it came from, and during what, in one line."""
    text = _text(error)
    frames: Sequence[Frame] = ()
    if not isinstance(error, SlackwaterError) and (traced := _traced(text)):
        essence, frames = traced
    else:
        kind = type(error).__name__
        java = None if text.startswith("[") else _java_essence(text)
        said = _without_state(java or _first_line(text))
        essence = said if java else f"{kind}: {said}".removesuffix(": ")
        if context := _context(text):
            essence += f" (in {context})"
    place = _place_in(frames) or user_place(error)
    essence = essence if len(essence) <= _MOST else essence[: _MOST - 3] + "..."
    parts = [essence.rstrip(".") if place is not None else essence]
    if place is not None and place not in text:
        parts.append(place)
    parts += getattr(error, "__notes__", ())
    return ", ".join(parts)


def user_place(error: BaseException) -> str | None:
    """Name the deepest line of the user's own code that an error, or its cause, passed through."""
    seen: BaseException | None = error
    while seen is not None:
        frames = [
            Frame(each.filename, each.lineno or 0, each.name)
            for each in traceback.extract_tb(seen.__traceback__)
        ]
        if (place := _place_in(frames)) is not None:
            return place
        seen = seen.__cause__
    return None


def defined_at(function: Callable[..., Any]) -> str:
    """Name a function, and where it is written, as far as that can be told.

    >>> defined_at(len)
    'len'
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    name = name.rpartition("<locals>.")[2]
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}, line {code.co_firstlineno})"


@contextmanager
def during(what: Callable[[], str]) -> Iterator[None]:
    """Let an error say what was being done; `what` is asked only if there is one."""
    try:
        yield
    except Exception as error:
        error.add_note(what())
        raise


def few(names: Sequence[str], most: int = 5) -> str:
    """List the first of many names.

    >>> few(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # asking Spark for it may fail, where Spark itself is what has failed
        return str(error.args[0]) if error.args else ""


def _traced(text: str) -> tuple[str, list[Frame]] | None:
    """Find the last Python trace in a text: what it ends with, and its frames."""
    _, found, trace = text.rpartition(_TRACE)
    if not found:
        return None
    frames: list[Frame] = []
    for line in trace.splitlines()[1:]:
        if (frame := _FRAME.match(line)) is not None:
            frames.append(Frame(frame["file"], int(frame["line"]), frame["name"]))
        elif line.strip() and not line[0].isspace():
            return _without_state(_SPARK_MODULES.sub("", line.strip())), frames
    return None


def _place_in(frames: Sequence[Frame]) -> str | None:
    """Name the deepest frame of the user's, who may also have installed what is theirs."""
    theirs = [each for each in frames if not each.file.startswith(("<", _OURS))]
    for machinery in (_STANDARD, _MACHINERY):
        theirs = [each for each in theirs if not machinery.search(each.file)]
    own = [each for each in theirs if not _INSTALLED.search(each.file)] or theirs
    return f"in {own[-1].name} ({own[-1].file}, line {own[-1].line})" if own else None


def _java_essence(text: str) -> str | None:
    """Find what a Java exception is about among those that only pass it on."""
    found: str | None = None
    for line in text.splitlines():
        if (lost := _LOST_TASK.search(line)) is not None:
            line = lost[1]
        cause = _JAVA_CAUSE.match(line)
        if cause is None:
            continue
        kind, said = cause[1].rpartition(".")[2], cause[2] or ""
        if not said.startswith(_WRAPPERS):
            return f"{kind}: {said}".removesuffix(": ")
        found = found or said
    return found


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _without_state(line: str) -> str:
    """Leave out the number that SQL has for a kind of error, and where in our own SQL it was."""
    return _SQL_STATE.sub("", line)


def _context(text: str) -> str | None:
    """Return the part of a SQL text that Spark has underlined, or the operation that it names."""
    if (found := _SQL_CONTEXT.search(text)) is not None:
        sql, marks = found["sql"], found["marks"]
        return repr(sql[marks.index("^") : len(marks)].strip() or sql.strip())
    if (found := _FRAME_CONTEXT.search(text)) is not None:
        return found["called"] + (f" at {found['site']}" if found["site"].endswith(_DIGITS) else "")
    return None
