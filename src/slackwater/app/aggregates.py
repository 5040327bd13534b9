"""Aggregates that can be made in pieces: what each computes per step, and how pieces become one.

An aggregate says three things: its *partials* (Spark aggregates over rows), how partials of one
group *merge*, and how merged partials *finish* as the result. Here they stand as Spark SQL; the
driver's own merging and finishing of small windows is in `slackwater.runtime.merge`.
However the rows were split, the result is that of one Spark batch over all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Self

from slackwater.app.names import quoted
from slackwater.app.types import (
    in_words,
    is_comparable,
    is_number,
    number_instead,
    plain_instead,
    widened_decimal,
)
from slackwater.errors import DescriptionError


class MergeKind(Enum):
    """Say how partials of one group become one partial."""

    SUM = "sum({column})"
    MIN = "min({column})"
    MAX = "max({column})"
    # The three columns n, mean, m2 of one aggregate stand side by side and merge together.
    MOMENTS = "moments"
    HLL = "hll_union_agg({column})"
    KLL = "kll_merge_agg_double({column})"


class Overflow(Enum):
    """Say what becomes of a sum that its type cannot hold: what Spark itself makes of it."""

    RAISES = "raises"
    WRAPS = "wraps"  # integers, without ANSI mode
    NULLS = "nulls"  # decimals, without ANSI mode


@dataclass(frozen=True)
class Partial:
    """Name one column of a window's state, the Spark aggregate that makes it, and how it merges.

    `keeps_type` is the type that a merged sum is cast back to: Spark widens decimals each time.
    `counted_by` names the partial beside a sum that counts what was added: where there is
    something and no sum, the sum has overflowed, and all that it is merged into has too.
    """

    column: str
    sql: str
    merge: MergeKind
    keeps_type: str | None = None
    overflow: Overflow = Overflow.RAISES
    counted_by: str | None = None

    @property
    def merge_sql(self) -> str:
        """Write the Spark aggregate over partial rows, for all kinds that merge alone."""
        column = quoted(self.column)
        merged = self.merge.value.format(column=column)
        if self.keeps_type:
            merged = f"CAST({merged} AS {self.keeps_type})"
        if self.counted_by is None:
            return merged
        lost = f"{column} IS NULL AND {quoted(self.counted_by)} > 0"
        return f"CASE WHEN count_if({lost}) = 0 THEN {merged} END"


@dataclass(frozen=True)
class Aggregate(ABC):
    """Describe one result column of a window; `column` is a column's name or any SQL expression.

    Once bound to its input, `named` says that it is a name, and `ansi` that sums which overflow
    raise, as Spark's do in ANSI mode.
    """

    # The public function that makes this aggregate.
    function: ClassVar[str]

    column: str | None
    type_name: str | None = None
    named: bool = field(default=False, kw_only=True)
    ansi: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what cannot be an expression."""
        if not isinstance(self.column, str) or not self.column.strip():
            raise DescriptionError(
                f"{self.label}: column={self.column!r} is not a column; "
                "give a column's name or a SQL expression, such as 'price * quantity'"
            )

    @property
    def label(self) -> str:
        """Show the aggregate as the user wrote it."""
        return f"{self.function}({'' if self.column is None else repr(self.column)})"

    @abstractmethod
    def partials(self, name: str) -> tuple[Partial, ...]:
        """List the state columns of the result called `name`."""

    @abstractmethod
    def finish_sql(self, name: str) -> str:
        """Write the Spark expression that makes the result from merged partials."""

    @property
    @abstractmethod
    def batch_sql(self) -> str:
        """Write the Spark aggregate over all rows at once that the result must equal."""

    def merge_sql(self, name: str) -> tuple[str, ...]:
        """Write the Spark aggregates, each with its alias, that merge partial rows of a group."""
        return tuple(f"{p.merge_sql} AS {quoted(p.column)}" for p in self.partials(name))

    @property
    def argument(self) -> str:
        """Write the column as SQL."""
        assert self.column is not None
        return quoted(self.column) if self.named else f"({self.column})"

    @property
    def state_note(self) -> str:
        """Say how its state differs from what its kind and type alone make of it."""
        return ""

    def over(self, type_name: str, place: str, *, named: bool = False, ansi: bool = True) -> Self:
        """Bind to the column's Spark type (such as "decimal(10,2)"), or say why it makes no sense.

        Run the aggregate that comes back, not the one the user wrote: a mean of decimals is a
        decimal, and Spark's sketch takes dates or doubles, only where the type is known.
        `place` names where the user wrote it, such as "aggregate(total=...)".
        """
        self._check_type(type_name, place)
        return replace(self, type_name=type_name, named=named, ansi=ansi)

    def _check_type(self, type_name: str, place: str) -> None:
        if not is_number(type_name):
            raise DescriptionError(
                f"{self.label} in {place} is over {in_words(type_name)}; "
                f"{number_instead(self.function, str(self.column), type_name)}"
            )

    @property
    def _as_double(self) -> str:
        return f"CAST({self.argument} AS DOUBLE)"


@dataclass(frozen=True)
class Count(Aggregate):
    """Count rows, or the rows where the column is not null."""

    column: str | None = None
    function: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        """Allow no column: then all rows count."""
        if self.column is not None:
            super().__post_init__()

    def partials(self, name: str) -> tuple[Partial, ...]:
        """Keep the count."""
        return (Partial(f"{name}__n", self.batch_sql, MergeKind.SUM),)

    def finish_sql(self, name: str) -> str:
        """Return the count."""
        return quoted(f"{name}__n")

    @property
    def batch_sql(self) -> str:
        """Count in Spark."""
        return "count(1)" if self.column is None else f"count({self.argument})"

    def _check_type(self, type_name: str, place: str) -> None:
        pass


@dataclass(frozen=True)
class Sum(Aggregate):
    """Add up; null where there is nothing to add."""

    function: ClassVar[str] = "sum"

    def partials(self, name: str) -> tuple[Partial, ...]:
        """Keep the sum; where a decimal that overflows is null, also how many were added."""
        keeps_type = widened_decimal(self.type_name or "", 10)
        if keeps_type is None or self.ansi:
            overflow = Overflow.RAISES if self.ansi else Overflow.WRAPS
            return (Partial(f"{name}__sum", self.batch_sql, MergeKind.SUM, keeps_type, overflow),)
        count = f"{name}__n"
        return (
            Partial(
                f"{name}__sum", self.batch_sql, MergeKind.SUM, keeps_type, Overflow.NULLS, count
            ),
            Partial(count, f"count({self.argument})", MergeKind.SUM),
        )

    @property
    def state_note(self) -> str:
        """Say where sums that overflow are told by a count."""
        counted = not self.ansi and widened_decimal(self.type_name or "", 10) is not None
        return ", null on overflow" if counted else ""

    def finish_sql(self, name: str) -> str:
        """Return the sum."""
        return quoted(f"{name}__sum")

    @property
    def batch_sql(self) -> str:
        """Add in Spark."""
        return f"sum({self.argument})"


@dataclass(frozen=True)
class Mean(Aggregate):
    """Average; null where there is nothing to average. Over decimals, a decimal."""

    function: ClassVar[str] = "mean"

    @property
    def decimal_type(self) -> str | None:
        """Name the result's type over decimals; None where the result is a double."""
        return widened_decimal(self.type_name or "", 4, 4)

    def partials(self, name: str) -> tuple[Partial, ...]:
        """Keep the sum (as Spark does: exact for decimals, a double otherwise) and the count."""
        keeps_type = widened_decimal(self.type_name or "", 10)
        total = f"sum({self.argument})" if keeps_type else f"sum({self._as_double})"
        count = f"{name}__n"
        nulls = keeps_type is not None and not self.ansi
        return (
            Partial(f"{name}__sum", total, MergeKind.SUM, keeps_type, Overflow.NULLS, count)
            if nulls
            else Partial(f"{name}__sum", total, MergeKind.SUM, keeps_type),
            Partial(count, f"count({self.argument})", MergeKind.SUM),
        )

    def finish_sql(self, name: str) -> str:
        """Divide; decimals of more than about 22 digits only to the scale Spark's division has."""
        mean = f"{quoted(f'{name}__sum')} / nullif({quoted(f'{name}__n')}, 0L)"
        return f"CAST({mean} AS {self.decimal_type})" if self.decimal_type else mean

    @property
    def batch_sql(self) -> str:
        """Average in Spark."""
        return f"avg({self.argument})" if self.decimal_type else f"avg({self._as_double})"


@dataclass(frozen=True)
class _Extreme(Aggregate):
    def partials(self, name: str) -> tuple[Partial, ...]:
        kind = MergeKind.MIN if self.function == "min" else MergeKind.MAX
        return (Partial(f"{name}__{self.function}", self.batch_sql, kind),)

    def finish_sql(self, name: str) -> str:
        return quoted(f"{name}__{self.function}")

    @property
    def batch_sql(self) -> str:
        return f"{self.function}({self.argument})"

    def _check_type(self, type_name: str, place: str) -> None:
        if not is_comparable(type_name):
            raise DescriptionError(
                f"{self.label} in {place} is over {in_words(type_name)}, which only Spark can "
                "order; take a plain column instead, such as one of its fields or "
                f"{self.function}('{plain_instead(str(self.column), type_name)}')"
            )


@dataclass(frozen=True)
class Min(_Extreme):
    """Keep the smallest; NaN is larger than any number, as in Spark."""

    function: ClassVar[str] = "min"


@dataclass(frozen=True)
class Max(_Extreme):
    """Keep the largest; NaN is larger than any number, as in Spark."""

    function: ClassVar[str] = "max"


_MERGED_MOMENTS = """aggregate(
  collect_list(struct(CAST({n} AS DOUBLE) AS n, {mean} AS mean, {m2} AS m2)) FILTER (WHERE {n} > 0),
  struct(0D AS n, 0D AS mean, 0D AS m2),
  (a, b) -> struct(
    a.n + b.n AS n,
    a.mean + (b.mean - a.mean) * (b.n / (a.n + b.n)) AS mean,
    a.m2 + b.m2 + (b.mean - a.mean) * (a.n * b.n / (a.n + b.n)) * (b.mean - a.mean) AS m2),
  a -> CASE WHEN a.n > 0 THEN a.{result} END)"""


@dataclass(frozen=True)
class Variance(Aggregate):
    """Take the sample variance; null below two values.

    Partials are count, mean and the sum of squared deviations (m2), merged by the formula of Chan,
    Golub and LeVeque (1979), so that a small variance around a large mean keeps its digits.
    """

    function: ClassVar[str] = "variance"

    def partials(self, name: str) -> tuple[Partial, ...]:
        """Keep count, mean and squared deviations."""
        x = self._as_double
        return (
            Partial(f"{name}__n", f"count({x})", MergeKind.MOMENTS),
            Partial(f"{name}__mean", f"avg({x})", MergeKind.MOMENTS),
            Partial(f"{name}__m2", f"var_pop({x}) * count({x})", MergeKind.MOMENTS),
        )

    def merge_sql(self, name: str) -> tuple[str, ...]:
        """Fold the three columns together."""
        n, mean, m2 = (quoted(p.column) for p in self.partials(name))
        fold = {
            result: _MERGED_MOMENTS.format(n=n, mean=mean, m2=m2, result=result)
            for result in ("mean", "m2")
        }
        return f"sum({n}) AS {n}", f"{fold['mean']} AS {mean}", f"{fold['m2']} AS {m2}"

    def finish_sql(self, name: str) -> str:
        """Divide the squared deviations by one less than the count."""
        n, m2 = quoted(f"{name}__n"), quoted(f"{name}__m2")
        return f"CASE WHEN {n} > 1 THEN {m2} / ({n} - 1) END"

    @property
    def batch_sql(self) -> str:
        """Take the variance in Spark."""
        return f"var_samp({self._as_double})"


@dataclass(frozen=True)
class StdDev(Variance):
    """Take the sample standard deviation; null below two values."""

    function: ClassVar[str] = "stddev"

    def finish_sql(self, name: str) -> str:
        """Take the root of the variance."""
        return f"sqrt({super().finish_sql(name)})"

    @property
    def batch_sql(self) -> str:
        """Take the standard deviation in Spark."""
        return f"stddev_samp({self._as_double})"


@dataclass(frozen=True)
class ApproxDistinct(Aggregate):
    """Estimate how many different values there are, with an Apache DataSketches HLL sketch.

    A sketch remembers in its estimator whether it was ever merged. Uniting it with itself before
    estimating removes that trace: the estimate depends on the values only, not on how they came.
    Empty strings and bytes are not counted (Spark's `hll_sketch_agg` leaves them out).
    """

    lg_k: int = 12
    function: ClassVar[str] = "approx_distinct"

    def __post_init__(self) -> None:
        """Refuse sizes that Spark refuses."""
        super().__post_init__()
        _check_whole(self.label, "lg_k", self.lg_k, 4, 21)

    def partials(self, name: str) -> tuple[Partial, ...]:
        """Keep the sketch."""
        return (Partial(f"{name}__hll", self._sketch, MergeKind.HLL),)

    def finish_sql(self, name: str) -> str:
        """Estimate."""
        sketch = quoted(f"{name}__hll")
        return f"hll_sketch_estimate(hll_union({sketch}, {sketch}))"

    @property
    def batch_sql(self) -> str:
        """Estimate in Spark."""
        return f"hll_sketch_estimate(hll_union({self._sketch}, {self._sketch}))"

    @property
    def _sketch(self) -> str:
        value = self.argument
        # Spark's sketch takes only these; a 64-bit hash stands for values of every other type,
        # and knows that 0.0 is -0.0. Null must stay null, for its hash is not.
        if self.type_name not in (None, "int", "bigint", "string", "binary"):
            value = f"CASE WHEN {value} IS NOT NULL THEN xxhash64({value}) END"
        return f"hll_sketch_agg({value}, {self.lg_k})"

    def _check_type(self, type_name: str, place: str) -> None:
        if type_name != "binary" and not is_comparable(type_name):
            raise DescriptionError(
                f"{self.label} in {place} is over {in_words(type_name)}; count a plain column "
                f"instead, such as {self.function}('{plain_instead(str(self.column), type_name)}')"
            )


@dataclass(frozen=True)
class ApproxQuantile(Aggregate):
    """Estimate quantiles with an Apache DataSketches KLL sketch; null where there are no values.

    Exact for up to `k` values in a group. Beyond, a sketch drops values at random, in Spark as in
    the driver, so two runs may differ within its rank error (about 1.3 % for k=200, at 99 %).
    NaN is left out. Several ranks give an array of quantiles.
    """

    p: float | tuple[float, ...] = 0.5
    k: int = 200
    function: ClassVar[str] = "approx_quantile"

    def __post_init__(self) -> None:
        """Refuse ranks outside 0 to 1 and sizes that Spark refuses."""
        super().__post_init__()
        ranks = self.p if isinstance(self.p, tuple) else (self.p,)
        for rank in ranks:
            if isinstance(rank, bool) or not isinstance(rank, int | float) or not 0 <= rank <= 1:
                raise DescriptionError(
                    f"{self.label}: p={rank!r} is not a rank; give a number from 0 to 1, "
                    "such as 0.5 for the median"
                )
        if not ranks:
            raise DescriptionError(f"{self.label}: p is empty; give at least one rank, such as 0.5")
        _check_whole(self.label, "k", self.k, 8, 65_535)

    def partials(self, name: str) -> tuple[Partial, ...]:
        """Keep the sketch."""
        return (Partial(f"{name}__kll", self._sketch, MergeKind.KLL),)

    def finish_sql(self, name: str) -> str:
        """Read the quantiles off the sketch."""
        return self._quantile_of(quoted(f"{name}__kll"))

    @property
    def batch_sql(self) -> str:
        """Estimate in Spark."""
        return self._quantile_of(self._sketch)

    @property
    def _sketch(self) -> str:
        return f"kll_sketch_agg_double({self._as_double}, {self.k})"

    def _quantile_of(self, sketch: str) -> str:
        if isinstance(self.p, tuple):
            ranks = f"array({', '.join(f'{float(rank)!r}D' for rank in self.p)})"
        else:
            ranks = f"{float(self.p)!r}D"
        quantile = f"kll_sketch_get_quantile_double({sketch}, {ranks})"
        return f"CASE WHEN kll_sketch_get_n_double({sketch}) > 0 THEN {quantile} END"


def _check_whole(label: str, field: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise DescriptionError(
            f"{label}: {field}={value!r} is out of range; give a whole number "
            f"from {least} to {most}"
        )


def count(column: str | None = None) -> Count:
    """Count rows, or rows where `column` is not null."""
    return Count(column)


def sum(column: str) -> Sum:
    """Add up `column`."""
    return Sum(column)


def mean(column: str) -> Mean:
    """Average `column`."""
    return Mean(column)


def min(column: str) -> Min:
    """Keep the smallest `column`."""
    return Min(column)


def max(column: str) -> Max:
    """Keep the largest `column`."""
    return Max(column)


def variance(column: str) -> Variance:
    """Take the sample variance of `column`."""
    return Variance(column)


def stddev(column: str) -> StdDev:
    """Take the sample standard deviation of `column`."""
    return StdDev(column)


def approx_distinct(column: str, lg_k: int = 12) -> ApproxDistinct:
    """Estimate the number of different values of `column`, from a sketch of 2^lg_k buckets."""
    return ApproxDistinct(column, lg_k=lg_k)


def approx_quantile(column: str, p: float | Sequence[float], k: int = 200) -> ApproxQuantile:
    """Estimate the quantile of `column` at rank `p`, or an array of them at several ranks."""
    ranks = tuple(p) if isinstance(p, Sequence) and not isinstance(p, str) else p
    return ApproxQuantile(column, p=ranks, k=k)
