"""Points in time that every room means the same by."""

from __future__ import annotations

# The last second of the year 9999: the watermark of a partition that has ended for good. It is
# the largest that a Spark timestamp, a Python datetime and a JSON number can all hold.
END_OF_TIME_MS = 253_402_300_799_000
# The first moment of the year 1, the earliest that a Python datetime can hold.
START_OF_TIME_MS = -62_135_596_800_000
