"""State rows that do not fit the driver, in Parquet files beside the journal."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.runtime.state import Block
from slackwater.spark.sinks.durable_files import make_directory, replace_file


class BlockStore:
    """Write, find and remove blocks. A block exists for the journal only once it is committed."""

    def __init__(self, directory: Path) -> None:
        """Use a directory, which Spark's executors must reach too."""
        self._directory = directory

    def write(self, step: int, query: int, start: int, table: pa.Table) -> Block:
        """Write the rows of one slice, durably."""
        make_directory(self._directory)
        path = f"block-{step:010d}-{query}-{start}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        replace_file(self._directory / path, [sink.getvalue()])
        return Block(path, table.num_rows)

    def paths(self, blocks: Iterable[Block]) -> list[Path]:
        """Say where blocks lie."""
        return [self._directory / block.path for block in blocks]

    def remove(self, blocks: Iterable[Block]) -> None:
        """Remove blocks that nothing needs any more."""
        for path in self.paths(blocks):
            path.unlink(missing_ok=True)

    def remove_orphans(self, referenced: Collection[str]) -> int:
        """Remove what a crash left behind between a file and its journal record; count it."""
        if not self._directory.is_dir():
            return 0
        orphans = [name for name in os.listdir(self._directory) if name not in referenced]
        for name in orphans:
            (self._directory / name).unlink(missing_ok=True)
        return len(orphans)
