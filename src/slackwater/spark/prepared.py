"""Prepared plans: built, proven safe, compiled once, and lent to one step at a time."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from slackwater.spark.batches import PlannedBatches
from slackwater.spark.frames import Template
from slackwater.spark.jvm.probe import why_not_prepared
from slackwater.spark.latebound import SpecificationCells, classic_jvm
from slackwater.spark.safety import unsafe_reasons
from slackwater.spark.sources.base import LateBoundReader

logger = logging.getLogger("slackwater")


@dataclass(frozen=True, eq=False)
class PreparedPlan:
    """Hold a planned frame and the cells that bind its input."""

    cells: SpecificationCells
    frame: DataFrame

    @cached_property
    def _batches(self) -> PlannedBatches:
        return PlannedBatches(self.frame)  # executes what is static in it: after it was judged

    def fetch(self) -> pa.Table:
        """Read what the cells are bound to, in one job."""
        return self._batches.fetch()


class PreparedPlans:
    """Lend plans to steps. A template has as many copies as its steps can, or did, run at once."""

    def __init__(
        self,
        spark: SparkSession,
        build: Callable[[Template, DataFrame], DataFrame],
        *,
        enabled: bool,
    ) -> None:
        """Use `build` to make a template's frame from a specification frame."""
        self._spark = spark
        self._build = build
        self._enabled = enabled and classic_jvm(spark) is not None
        self._idle: dict[Template, list[PreparedPlan]] = {}
        self._forgotten: Counter[Template] = Counter()
        self._verdicts: dict[Template, list[str]] = {}  # empty: safe
        self._lock = threading.Lock()

    @cached_property
    def _why_never(self) -> str | None:
        """Say why this session cannot run plans again; asked of Spark once, not for each step."""
        return why_not_prepared(self._spark)

    def why_not(self, template: Template) -> list[str]:
        """Say why a template is not prepared, as far as is known; empty where it is or may be."""
        if not all(isinstance(reader, LateBoundReader) for reader in template.readers):
            return ["its source needs a scan of its own"]
        if not self._enabled:
            return ["preparing is off, or the session is not a classic one"]
        if self._why_never is not None:
            return [self._why_never]
        return self._verdicts.get(template, [])

    def warm(self, template: Template, copies: int) -> None:
        """Make plans of a template and run them over nothing, so that their code is compiled."""
        with ExitStack() as together:
            for plan in [together.enter_context(self.lent(template)) for _ in range(copies)]:
                if plan is not None:
                    plan.cells.clear()
                    plan.fetch()

    @contextmanager
    def lent(self, template: Template) -> Iterator[PreparedPlan | None]:
        """Lend a plan that nobody else uses; None where the template must be rebuilt."""
        forgotten = self._forgotten[template]
        plan = self._borrow(template)
        try:
            yield plan
        except BaseException:
            plan = None  # what a failed run leaves behind is not trusted
            raise
        finally:
            with self._lock:
                if plan is not None and self._forgotten[template] == forgotten:
                    self._idle.setdefault(template, []).append(plan)

    def forget(self, template: Template) -> None:
        """Drop a template's plans, so that the next step makes them, and static tables, anew."""
        with self._lock:
            self._idle.pop(template, None)
            self._forgotten[template] += 1  # what is lent now does not come back

    def _borrow(self, template: Template) -> PreparedPlan | None:
        if self.why_not(template):
            return None
        with self._lock:
            if self._idle.get(template):
                return self._idle[template].pop()
        cells = SpecificationCells(self._spark, template.specification_types)
        plan = PreparedPlan(cells, self._build(template, cells.frame).coalesce(1))
        return None if self._judge(template, plan) else plan

    def _judge(self, template: Template, plan: PreparedPlan) -> list[str]:
        """Find out, once per template, why it may not be prepared."""
        with self._lock:
            if template not in self._verdicts:
                reasons = unsafe_reasons(plan.frame, plan.cells.rdd_id)
                self._verdicts[template] = reasons
                if reasons:
                    logger.info(
                        "%s is rebuilt for each step: %s", template.output.place, "; ".join(reasons)
                    )
            return self._verdicts[template]
