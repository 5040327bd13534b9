"""The newest records of a partition, held in the driver until their queries have read them."""

from __future__ import annotations

from bisect import bisect_left

from slackwater.spark.kafka.records import GUESSED_BYTES, Records

_OVERHEAD_BYTES = 150  # of a record's Python objects
_MEMORY = 0.05  # how much the newest batch counts in the mean size of records


class Tail:
    """Hold all records with `first <= offset < until`; offsets may have gaps.

    >>> tail = Tail(10)
    >>> tail.extend(Records([10, 12], [0, 0], [b"a", b"b"], [None, None], [(), ()]))
    >>> tail.reached(14)
    >>> tail.first, tail.until, tail.fitting(10, 14, 1), tail.fitting(11, 13, 9)
    (10, 14, (12, 1), (13, 1))
    """

    def __init__(self, at: int) -> None:
        """Begin, empty, at an offset."""
        self.first = self.until = at
        self.held_bytes = 0
        self.mean_bytes = 0.0
        self._records = Records()

    def restart(self, at: int) -> None:
        """Forget everything, and begin again at an offset."""
        self.first = self.until = at
        self.held_bytes = 0
        self._records = Records()

    def extend(self, records: Records) -> None:
        """Take in what comes next, in order; what is known already is passed over."""
        known = bisect_left(records.offsets, self.until)
        if known:
            records = records.between(known, len(records))
        if not records.offsets:
            return
        self._records.extend(records)
        self.until = records.offsets[-1] + 1
        size = records.size
        self.held_bytes += size + _OVERHEAD_BYTES * len(records)
        mean = size / len(records)
        self.mean_bytes += (mean - self.mean_bytes) * (_MEMORY if self.mean_bytes else 1.0)

    @property
    def stored_bytes(self) -> float:
        """Return about what holding a record takes."""
        return (self.mean_bytes or GUESSED_BYTES) + _OVERHEAD_BYTES

    def reached(self, offset: int) -> None:
        """Note that there is no further record before an offset."""
        self.until = max(self.until, offset)

    def drop_below(self, offset: int) -> None:
        """Forget records that nobody needs any more."""
        if offset <= self.first:
            return
        count = self._index(offset)
        if count:
            gone = self._records.between(0, count)
            self.held_bytes -= gone.size + _OVERHEAD_BYTES * count
            self._records = self._records.between(count, len(self._records))
        self.first = min(offset, self.until)

    def covers(self, first: int, until: int) -> bool:
        """Tell whether all records of a range are here."""
        return self.first <= first and until <= self.until

    def take(self, first: int, until: int) -> Records:
        """Return the records of a range that is covered."""
        return self._records.between(self._index(first), self._index(until))

    def fitting(self, first: int, end: int, most: int) -> tuple[int, int]:
        """Return how far `most` records between `first` and `end` reach, and how many they are."""
        begin = self._index(first)
        held = self._index(end) - begin
        if held <= most:
            return min(self.until, end), held
        return self._records.offsets[begin + most], most

    def next_stamp_ms(self, offset: int) -> int | None:
        """Return the time of the first record at or after an offset, if it is here."""
        index = self._index(offset)
        return self._records.stamps_ms[index] if index < len(self._records) else None

    def _index(self, offset: int) -> int:
        return bisect_left(self._records.offsets, offset)
