"""The newest records of a partition, held in the driver until their queries have read them."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from slackwater.spark.kafka.records import KafkaRecord

_BY_OFFSET = attrgetter("offset")
_OVERHEAD_BYTES = 150  # of a record's Python objects
_MEMORY = 0.05  # how much the newest batch counts in the mean size of records


class Tail:
    """Hold all records with `first <= offset < until`; offsets may have gaps.

    >>> tail = Tail(10)
    >>> tail.extend([KafkaRecord(10, 0, b"a", None, ()), KafkaRecord(12, 0, b"b", None, ())])
    >>> tail.reached(14)
    >>> tail.first, tail.until, tail.fitting(10, 14, 1), tail.fitting(11, 13, 9)
    (10, 14, (12, 1), (13, 1))
    """

    def __init__(self, at: int) -> None:
        """Begin, empty, at an offset."""
        self.first = self.until = at
        self.held_bytes = 0
        self.mean_bytes = 0.0
        self._records: list[KafkaRecord] = []

    def restart(self, at: int) -> None:
        """Forget everything, and begin again at an offset."""
        self.first = self.until = at
        self.held_bytes = 0
        self._records = []

    def extend(self, records: list[KafkaRecord]) -> None:
        """Take in what comes next, in order; what is known already is passed over."""
        if records and records[0].offset < self.until:
            records = [record for record in records if record.offset >= self.until]
        if not records:
            return
        self._records += records
        self.until = records[-1].offset + 1
        size = sum(record.size for record in records)
        self.held_bytes += size + _OVERHEAD_BYTES * len(records)
        mean = size / len(records)
        self.mean_bytes += (mean - self.mean_bytes) * (_MEMORY if self.mean_bytes else 1.0)

    def stored_bytes(self, guess: float) -> float:
        """Return about what holding a record takes; before the first was seen, `guess` counts."""
        return (self.mean_bytes or guess) + _OVERHEAD_BYTES

    def reached(self, offset: int) -> None:
        """Note that there is no further record before an offset."""
        self.until = max(self.until, offset)

    def drop_below(self, offset: int) -> None:
        """Forget records that nobody needs any more."""
        if offset <= self.first:
            return
        count = self._index(offset)
        if count:
            gone = self._records[:count]
            self.held_bytes -= sum(r.size for r in gone) + _OVERHEAD_BYTES * count
            del self._records[:count]
        self.first = min(offset, self.until)

    def covers(self, first: int, until: int) -> bool:
        """Tell whether all records of a range are here."""
        return self.first <= first and until <= self.until

    def take(self, first: int, until: int) -> list[KafkaRecord]:
        """Return the records of a range that is covered."""
        return self._records[self._index(first) : self._index(until)]

    def fitting(self, first: int, end: int, most: int) -> tuple[int, int]:
        """Return how far `most` records between `first` and `end` reach, and how many they are."""
        begin = self._index(first)
        held = self._index(end) - begin
        if held <= most:
            return min(self.until, end), held
        return self._records[begin + most].offset, most

    def next_record(self, offset: int) -> KafkaRecord | None:
        """Return the first record at or after an offset, if it is here."""
        index = self._index(offset)
        return self._records[index] if index < len(self._records) else None

    def _index(self, offset: int) -> int:
        return bisect_left(self._records, offset, key=_BY_OFFSET)
