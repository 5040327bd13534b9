"""Records as lines of JSON: how they travel in a specification, and how they are read anywhere.

A line is a record if it is one JSON object that fits the schema. Any other line that is not blank
is malformed: MALFORMED holds its text and every column is null. Fields that the schema does not
name are ignored, fields that are missing are null. `NaN` and single quotes are not JSON.

A timestamp column takes ISO-8601 text, with or without fraction and offset (without: in the
session's time zone). A number could be seconds, milliseconds or microseconds since 1970, so it is
malformed unless `epoch` says which. Timestamps *inside* a column of type struct, array or map keep
Spark's own rule: a whole number is seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, get_args

from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater.app.checks import doubled_name, is_system_name
from slackwater.app.names import quoted, sql_text
from slackwater.errors import DescriptionError
from slackwater.spark.column_types import check_readable
from slackwater.spark.sources.base import (
    ARRIVAL,
    MALFORMED,
    OFFSET,
    PARTITION,
    QUERY,
    LateBoundReader,
)

Epoch = Literal["seconds", "milliseconds", "microseconds"]

# A block is a run of lines that arrived together, numbered from `first`.
ENTRY_TYPE = (
    "struct<query:int,partition:int,"
    "blocks:array<struct<first:bigint,arrival:bigint,rows:array<string>>>>"
)
LINE = "_sw_line"
_PARSED, _VALID = "_sw_parsed", "_sw_valid"
_WHOLE, _ROW = "_sw_whole", "_sw_row"
_OPENS, _BETWEEN, _CLOSES = '{"rows":[', ",\n", "]}"
_MICROSECONDS_PER = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
_LAST_MICROSECOND = 253_402_300_799_999_999  # of the year 9999


def block(first: int, arrival_ms: int, lines: Sequence[str]) -> dict[str, Any]:
    """Write lines that arrived together, the first of them with offset `first`."""
    return {"first": first, "arrival": arrival_ms, "rows": list(lines)}


def blocks_by_arrival(first: int, records: Iterable[tuple[int, str]]) -> list[dict[str, Any]]:
    """Write consecutive records, given as (arrival in ms, line), as few blocks as possible.

    >>> [b["first"] for b in blocks_by_arrival(7, [(100, "{}"), (100, "{}"), (250, "{}")])]
    [7, 9]
    """
    blocks = []
    for arrival_ms, run in groupby(records, key=itemgetter(0)):
        lines = [line for _, line in run]
        blocks.append(block(first, arrival_ms, lines))
        first += len(lines)
    return blocks


def whole_text(lines: Sequence[str]) -> str | None:
    r"""Write lines as one JSON text that can be cut into them again; None where that cannot be.

    A line that has but one brace that closes, at its end, cannot hold more than one object. A line
    break, which no string in JSON may contain, keeps an open string from running into the next.

    >>> whole_text(['{"a": 1}', '{"a": 2}'])
    '{"rows":[{"a": 1},\n{"a": 2}]}'
    >>> whole_text(['{"a": {}}']), whole_text(['{} {}']), whole_text(['1'])
    (None, None, None)
    """
    for line in lines:
        if line[:1] != "{" or line.find("}") != len(line) - 1:
            return None
    return _OPENS + _BETWEEN.join(lines) + _CLOSES


def inline_entry(query: int, partition: int, blocks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Write one range as a specification entry of ENTRY_TYPE."""
    return {"query": query, "partition": partition, "blocks": list(blocks)}


@dataclass(frozen=True)
class JsonRecords:
    """Turn lines of JSON into columns, by the rules of this module."""

    schema: StructType
    epoch: Epoch | None = None

    def __post_init__(self) -> None:
        """Refuse units that do not exist."""
        if self.epoch is not None and self.epoch not in get_args(Epoch):
            raise DescriptionError(
                f"epoch={self.epoch!r} is not a unit: use one of {', '.join(get_args(Epoch))}, "
                "or None where timestamps are ISO-8601 text"
            )

    def parse(
        self, frame: DataFrame, carried: Sequence[str] = (), *, further: Sequence[str] = ()
    ) -> DataFrame:
        """Read QUERY, PARTITION, OFFSET, ARRIVAL and LINE as `schema`, then SYSTEM_COLUMNS.

        Columns of `frame` to be `carried` along come between the two, `further` ones behind.
        """
        kept = (QUERY, PARTITION, OFFSET, ARRIVAL, *map(quoted, carried), *further, LINE)
        parsed = f"{self._from_json(LINE, self._line_ddl())} AS {_PARSED}"
        rows = frame.where(f"trim(BOTH ' \\t' FROM {LINE}) <> ''").selectExpr(*kept, parsed)
        return self._columns(rows, carried, further)

    def parse_runs(
        self, frame: DataFrame, carried: Sequence[str] = (), *, further: Sequence[str] = ()
    ) -> DataFrame:
        """Read runs of lines, each a row: QUERY, PARTITION, `first`, `arrivals` and `lines`.

        The result is that of `parse`; `carried` columns are arrays like `lines`, of an element
        each. No line may be blank. `whole`, where it is not null, stands for `lines` and says the
        same as one JSON text (`whole_text`), which is read sooner: a parser, with its buffers, is
        made once and not for every line. If any of its lines is malformed, they are read one by
        one. Where only a timestamp is malformed, its line is not told but left empty.
        """
        kept = (QUERY, PARTITION, *further, "first", "arrivals", *carried)
        row = _ddl(StructType(self._raw_fields()))
        text = self._from_json("whole", f"struct<rows: array<{row}>, {MALFORMED}: string>")
        good = (
            f"coalesce({_WHOLE}.{MALFORMED} IS NULL AND size({_WHOLE}.rows) = size(arrivals), "
            "false)"
        )
        none = f"from_json('[]', {sql_text(f'array<{row}>')})"
        cut = (
            f"split(substring(whole, {len(_OPENS) + 1}, "
            f"length(whole) - {len(_OPENS) + len(_CLOSES)}), '(?<=[}}]),\\n')"
        )
        zipped = ", ".join(("rows", "lines", "arrivals", *carried))
        rows = (
            frame.selectExpr(*kept, "lines", "whole", f"{text} AS {_WHOLE}")
            .selectExpr(
                *kept,
                f"if({good}, {_WHOLE}.rows, {none}) AS rows",
                f"if({good}, array(), coalesce(lines, {cut})) AS lines",
            )
            .selectExpr(
                *(QUERY, PARTITION, *further, "first"),
                f"posexplode(arrays_zip({zipped})) AS (at, each)",
            )
            .selectExpr(
                *(QUERY, PARTITION, f"first + at AS {OFFSET}", f"each.arrivals AS {ARRIVAL}"),
                *(f"each.{quoted(name)}" for name in carried),
                *further,
                f"coalesce(each.lines, '') AS {LINE}",
                f"each.rows AS {_ROW}",
                f"{self._from_json('each.lines', self._line_ddl())} AS {_PARSED}",
            )
        )
        return self._columns(rows, carried, further, read_already=True)

    def _columns(
        self,
        frame: DataFrame,
        carried: Sequence[str],
        further: Sequence[str],
        *,
        read_already: bool = False,
    ) -> DataFrame:
        """Take the columns out of _PARSED where it is valid, or out of _ROW where that is there."""
        placed = (*map(quoted, carried), QUERY, PARTITION, OFFSET, ARRIVAL)
        cells = {field.name: f"{_PARSED}.{quoted(field.name)}" for field in self.schema.fields}
        # from_json stops after the first object. If the first brace that closes is the last
        # character, nothing can follow; else a second look decides.
        valid = (
            f"({_PARSED} IS NOT NULL AND {_PARSED}.{MALFORMED} IS NULL "
            f"AND (instr({LINE}, '}}') = length({LINE}) "
            f"OR coalesce(json_array_length(concat('[', {LINE}, ']')) = 1, false)))"
        )
        if read_already:
            valid = f"({_ROW} IS NOT NULL OR {valid})"
            cells = {name: f"coalesce({_ROW}.{quoted(name)}, {cells[name]})" for name in cells}
        instants = {
            field.name: (f"_sw_instant_{index}", self._instant_sql(cells[field.name]))
            for index, field in enumerate(self.schema.fields)
            if isinstance(field.dataType, TimestampType)
        }
        for name, (alias, _) in instants.items():
            valid += f" AND ({cells[name]} IS NULL OR {alias} IS NOT NULL)"
        cells |= {name: alias for name, (alias, _) in instants.items()}
        columns = (f"if({_VALID}, {cell}, NULL) AS {quoted(n)}" for n, cell in cells.items())
        return (
            frame.selectExpr("*", *(f"{sql} AS {alias}" for alias, sql in instants.values()))
            .selectExpr("*", f"{valid} AS {_VALID}")
            .selectExpr(*columns, *placed, f"if({_VALID}, NULL, {LINE}) AS {MALFORMED}", *further)
        )

    @staticmethod
    def _from_json(text: str, ddl: str) -> str:
        # Options keep Spark from pruning the parsed schema, which would hide malformed fields.
        return (
            f"from_json({text}, {sql_text(ddl)}, map('mode', 'PERMISSIVE', "
            f"'columnNameOfCorruptRecord', '{MALFORMED}', 'allowSingleQuotes', 'false', "
            "'allowNonNumericNumbers', 'false'))"
        )

    def _line_ddl(self) -> str:
        return _ddl(StructType([*self._raw_fields(), StructField(MALFORMED, StringType())]))

    def _raw_fields(self) -> list[StructField]:
        """Describe the fields as they stand in the text, timestamps still unread."""
        return [
            StructField(f.name, StringType())
            if isinstance(f.dataType, TimestampType)
            else StructField(f.name, f.dataType)
            for f in self.schema.fields
        ]

    def _instant_sql(self, text: str) -> str:
        # A cast alone would take '2024' for a year and '1:30' for a time of today.
        read = f"WHEN {text} RLIKE '^[0-9]{{4}}-[0-9]' THEN try_cast({text} AS TIMESTAMP)"
        if self.epoch is not None:
            scale = _MICROSECONDS_PER[self.epoch]
            micros = f"try_cast(try_cast({text} AS DECIMAL(30,9)) * {scale} AS BIGINT)"
            bounds = f"BETWEEN -{_LAST_MICROSECOND} AND {_LAST_MICROSECOND}"
            read += f" WHEN {micros} {bounds} THEN timestamp_micros({micros})"
        return f"CASE {read} END"


class InlineRows(LateBoundReader):
    """A reader whose lines the driver has in hand: they travel in the specification itself."""

    entry_type = ENTRY_TYPE
    records: JsonRecords

    def expand(self, entries: DataFrame, further: Sequence[str] = ()) -> DataFrame:
        """Turn entries of ENTRY_TYPE into source rows."""
        return self.records.parse(
            entries.selectExpr(
                f"r.query AS {QUERY}", f"r.partition AS {PARTITION}", *further, "inline(r.blocks)"
            )
            .selectExpr(
                QUERY,
                PARTITION,
                *further,
                "first",
                f"arrival AS {ARRIVAL}",
                f"posexplode(rows) AS (at, {LINE})",
            )
            .selectExpr(QUERY, PARTITION, *further, f"first + at AS {OFFSET}", ARRIVAL, LINE),
            further=further,
        )


def checked_schema(schema: StructType | str, event_time: str) -> StructType:
    """Return the schema of records, or say what is wrong with it (DDL needs a running session)."""
    if isinstance(schema, str):
        try:
            parsed = DataType.fromDDL(schema)
        except ParseException as error:
            raise DescriptionError(
                f"schema={schema!r} is not DDL: write it such as 'ts timestamp, amount double' "
                f"({str(error).strip().splitlines()[0]})"
            ) from error
    else:
        parsed = schema
    if not isinstance(parsed, StructType) or not parsed.fields:
        raise DescriptionError(f"schema={schema!r} has no columns: name each with its type")
    names = [field.name for field in parsed.fields]
    reserved = [n for n in names if is_system_name(n) or n.lower() == "_metadata"]
    if reserved:
        raise DescriptionError(f"schema has {reserved[0]!r}, a reserved name: rename that column")
    if not all(names):
        raise DescriptionError(f"schema has a column without a name among {names}: name it")
    if doubled_name(names) is not None:
        raise DescriptionError(f"schema names a column twice: {', '.join(names)}; rename one")
    if event_time not in names:
        raise DescriptionError(
            f"event_time={event_time!r} is not in the schema: use one of {', '.join(names)}"
        )
    if not isinstance(parsed[event_time].dataType, TimestampType):
        raise DescriptionError(
            f"event_time={event_time!r} is {parsed[event_time].dataType.simpleString()} in the "
            "schema: declare it as timestamp"
        )
    check_readable(parsed.fields, "schema")
    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in parsed.fields])


def _ddl(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{quoted(f.name)}: {_ddl(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()
