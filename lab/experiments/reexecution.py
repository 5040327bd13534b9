"""How long a past window takes to be executed once more: staged ahead, not, or without an order.

    python lab/experiments/reexecution.py --rows 500000

The window's rows lie in blocks on storage. A function over rows runs on Spark, partials are merged
in the driver; each is measured with its blocks staged ahead and with none staged, after the page
cache has given them up. While other windows are being destaged, the time from asking for the window
until it is staged is measured with the one ordered lane and with several that keep no order.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.runtime.block_files import LocalBlockFiles
from slackwater.runtime.blocks import BlockStore, new_block, packed
from slackwater.runtime.io_lane import IoLane, Urgency
from slackwater.runtime.merge import finish, merge
from slackwater.runtime.staged import StagedBlocks
from slackwater.runtime.state import Block, SliceState
from slackwater.spark.staged_frames import StagedFrames

AGGREGATES = {"n": sw.count(), "top": sw.max("value")}
BLOCKS = 10


class Window:
    """Hold a past window's blocks on storage."""

    def __init__(self, directory: Path, tables: Sequence[pa.Table]) -> None:
        """Write the blocks."""
        self.directory = directory
        self.store = BlockStore(LocalBlockFiles(directory))
        self.blocks = tuple(self.store.write(0, 0, table) for table in tables)
        self.state = SliceState(blocks=self.blocks)

    def forget_cached(self) -> None:
        """Let the operating system give up what it holds of the files."""
        for path in self.directory.rglob("*.parquet"):
            handle = os.open(path, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def rows_of(count: int, payload: int, seed: int) -> pa.Table:
    """Make rows with a payload that compresses as text does."""
    chance = np.random.default_rng(seed)
    words = np.array([f"w{number:04d}" for number in range(2_000)])
    texts = pa.array(
        ["".join(words[chance.integers(0, 2_000, payload // 5)]) for _ in range(2_000)]
    )
    return pa.table(
        {
            "key": chance.integers(0, 1_000, count),
            "value": chance.random(count),
            "payload": texts.take(pa.array(chance.integers(0, 2_000, count))),
        }
    )


def partials_of(count: int, first: int, seed: int) -> pa.Table:
    """Make partials of distinct keys."""
    chance = np.random.default_rng(seed)
    columns = [p.column for name, a in AGGREGATES.items() for p in a.partials(name)]
    values = [pa.array(np.ones(count, dtype=np.int64)), pa.array(chance.random(count))]
    keys = pa.array(np.arange(first, first + count))
    return pa.table([keys, *values], names=["key", *columns])


def merged(staged: StagedBlocks, window: Window) -> None:
    """Merge and finish partials in the driver, as a re-execution does."""
    table = pa.concat_tables(staged.in_memory(window.state).chunks)
    finish(merge(table, ["key"], AGGREGATES), ["key"], AGGREGATES)


def computed(spark: SparkSession, staged: StagedBlocks, window: Window) -> None:
    """Run a function over the rows on Spark, as a re-execution does."""
    frames, files = staged.spread(window.blocks)
    parts = [*frames, *([spark.read.parquet(*files)] if files else [])]
    rows = reduce(DataFrame.union, parts)
    rows.groupBy("key").agg({"value": "avg", "payload": "max"}).toArrow()


def timed(act: Callable[[], object], before: Callable[[], object], times: int = 5) -> float:
    """Return the median time of some tries, in milliseconds; the first warms up."""
    took = []
    for _ in range(times + 1):
        before()
        started = time.perf_counter()
        act()
        took.append((time.perf_counter() - started) * 1_000)
    return statistics.median(took[1:])


def staging_ms(window: Window, others: Sequence[pa.Table], lanes: int) -> float:
    """Measure how long staging takes while other windows are being destaged."""
    lane = IoLane(lanes=lanes)
    staged = StagedBlocks(window.store)
    written: list[Block] = []

    def write(table: pa.Table) -> None:
        block = new_block(1, 0, table)
        written.append(block)
        lane.submit(
            Urgency.DESTAGE,
            lambda: packed(block, table),
            lambda made: window.store.put(*made),
            lambda _: None,
        )

    def keep(block: Block) -> Callable[[pa.Buffer], None]:
        return lambda content: staged.put(block, window.store.unpack(block, content))

    for table in others:
        write(table)
    time.sleep(0.2)  # destaging is under way
    started = time.perf_counter()
    futures = [
        lane.submit(
            Urgency.PRESTAGE,
            lambda: None,
            lambda _, block=block: window.store.fetch(block),  # type: ignore[misc]
            keep(block),
        )
        for block in window.blocks
    ]
    for future in futures:
        future.result()
    took_ms = (time.perf_counter() - started) * 1_000
    lane.settle()
    lane.close()
    window.store.remove(written)
    return took_ms


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--payload", type=int, default=400)
    given = parser.parse_args(arguments)
    each = given.rows // BLOCKS
    spark = sw.session("local[2]", spark_driver_memory="3g")
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as place:
        partials = Window(
            Path(place, "partials"), [partials_of(each, b * each, b) for b in range(BLOCKS)]
        )
        rows = Window(Path(place, "rows"), [rows_of(each, given.payload, b) for b in range(BLOCKS)])
        none, copies = StagedBlocks(partials.store), StagedBlocks(partials.store)
        for block in partials.blocks:
            copies.put(block, partials.store.read(block))
        show(
            "merge in the driver",
            timed(lambda: merged(copies, partials), lambda: None),
            timed(lambda: merged(none, partials), partials.forget_cached),
        )
        held = StagedBlocks(rows.store, StagedFrames(spark))
        columns = spark.createDataFrame(rows_of(1, given.payload, 0)).schema
        held.to_spark(rows.blocks, columns)
        show(
            "function on Spark",
            timed(lambda: computed(spark, held, rows), lambda: None),
            timed(lambda: computed(spark, StagedBlocks(rows.store), rows), rows.forget_cached),
        )
        others = [rows_of(each, given.payload, 100 + number) for number in range(4)] * 6
        ordered = [staging_ms(partials, others, lanes=1) for _ in range(3)]
        unordered = [staging_ms(partials, others, lanes=4) for _ in range(3)]
        one, several = statistics.median(ordered), statistics.median(unordered)
        print(
            f"staged while {len(others)} blocks are destaged: {one:,.0f} ms in one ordered lane, "
            f"{several:,.0f} ms in four without order, ratio {several / one:.1f}"
        )
    spark.stop()


def show(what: str, ahead_ms: float, not_ms: float) -> None:
    """Print one comparison."""
    ratio = not_ms / ahead_ms
    print(f"{what}: staged ahead {ahead_ms:,.0f} ms, not {not_ms:,.0f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
