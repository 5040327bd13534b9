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

from slackwater.errors import DescriptionError
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
_RESERVED_PREFIX = "_sw_"
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


def is_plain(line: str) -> bool:
    """Tell whether nothing can follow the first object in a line.

    >>> is_plain('{"a": 1}'), is_plain('{"a": {}}'), is_plain('{} {}')
    (True, False, False)
    """
    return line.find("}") == len(line) - 1


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
        self,
        frame: DataFrame,
        carried: Sequence[str] = (),
        *,
        further: Sequence[str] = (),
        plain: str | None = None,
    ) -> DataFrame:
        """Read QUERY, PARTITION, OFFSET, ARRIVAL and LINE as `schema`, then SYSTEM_COLUMNS.

        Columns of `frame` to be `carried` along come between the two, `further` ones behind.
        `plain` names a column of `frame` that is true where `is_plain` is known to hold of LINE;
        where it is given, no line is blank. Both save a look at every character.
        """
        placed = (*map(sql_name, carried), QUERY, PARTITION, OFFSET, ARRIVAL)
        system = (*placed, *further)
        fields = self.schema.fields
        instants = {
            field.name: f"_sw_instant_{index}"
            for index, field in enumerate(fields)
            if isinstance(field.dataType, TimestampType)
        }
        # Options keep Spark from pruning the parsed schema, which would hide malformed fields.
        parsed = (
            f"from_json({LINE}, {sql_text(self._raw_ddl())}, map('mode', 'PERMISSIVE', "
            f"'columnNameOfCorruptRecord', '{MALFORMED}', 'allowSingleQuotes', 'false', "
            f"'allowNonNumericNumbers', 'false')) AS {_PARSED}"
        )
        read = [f"{self._instant_sql(name)} AS {alias}" for name, alias in instants.items()]
        valid = [
            f"{_PARSED} IS NOT NULL AND {_PARSED}.{MALFORMED} IS NULL",
            # from_json stops after the first object. If the first brace that closes is the last
            # character, nothing can follow; else a second look decides.
            f"({plain or 'false'} OR instr({LINE}, '}}') = length({LINE}) "
            f"OR coalesce(json_array_length(concat('[', {LINE}, ']')) = 1, false))",
            *(
                f"({_PARSED}.{sql_name(name)} IS NULL OR {alias} IS NOT NULL)"
                for name, alias in instants.items()
            ),
        ]
        columns = (
            f"if({_VALID}, {instants.get(f.name, f'{_PARSED}.{sql_name(f.name)}')}, NULL) "
            f"AS {sql_name(f.name)}"
            for f in fields
        )
        if plain is None:
            frame = frame.where(f"trim(BOTH ' \\t' FROM {LINE}) <> ''")
        known = () if plain is None else (plain,)
        return (
            frame.selectExpr(*system, LINE, *known, parsed)
            .selectExpr(*system, LINE, *known, _PARSED, *read)
            .selectExpr("*", f"{' AND '.join(valid)} AS {_VALID}")
            .selectExpr(*columns, *placed, f"if({_VALID}, NULL, {LINE}) AS {MALFORMED}", *further)
        )

    def _raw_ddl(self) -> str:
        """Describe the fields as they stand in the text, timestamps still unread."""
        fields = [
            StructField(f.name, StringType())
            if isinstance(f.dataType, TimestampType)
            else StructField(f.name, f.dataType)
            for f in self.schema.fields
        ]
        return _ddl(StructType([*fields, StructField(MALFORMED, StringType())]))

    def _instant_sql(self, name: str) -> str:
        text = f"{_PARSED}.{sql_name(name)}"
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
    reserved = [n for n in names if n.lower().startswith(_RESERVED_PREFIX) or n == "_metadata"]
    if reserved:
        raise DescriptionError(f"schema has {reserved[0]!r}, a reserved name: rename that column")
    if len({name.lower() for name in names}) < len(names):
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
    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in parsed.fields])


def sql_text(text: str) -> str:
    r"""Write a SQL string literal.

    >>> sql_text("it's")
    "'it\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sql_name(name: str) -> str:
    """Quote a column's name."""
    return "`" + name.replace("`", "``") + "`"


def _ddl(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return (
            f"struct<{', '.join(f'{sql_name(f.name)}: {_ddl(f.dataType)}' for f in kind.fields)}>"
        )
    if isinstance(kind, ArrayType):
        return f"array<{_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return kind.simpleString()
