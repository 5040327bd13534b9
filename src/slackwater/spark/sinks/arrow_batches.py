"""A frame's rows in the driver a batch at a time, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

_PACKED = "packed"


def arrow_batches(frame: DataFrame) -> Iterator[pa.Table]:
    """Fetch one partition after the other, as tables of at most Spark's `maxRecordsPerBatch`."""
    for row in frame.mapInArrow(_pack, f"{_PACKED} binary").toLocalIterator():
        with pa.ipc.open_stream(row[_PACKED]) as reader:
            yield reader.read_all()


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        content = pa.BufferOutputStream()
        with pa.ipc.new_stream(content, batch.schema) as writer:
            writer.write_batch(batch)
        packed = pa.array([content.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([packed], [_PACKED])
