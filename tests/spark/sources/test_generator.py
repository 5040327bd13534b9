from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, window

from slackwater.app.watermarks import bounded, punctuated
from slackwater.errors import DescriptionError
from slackwater.progress.arrivals import UPPER_UNIFORM_SQL, hash64, upper_uniform
from slackwater.progress.distributions import NAMED_DELAYS, ConstantDelay
from slackwater.progress.times import END_OF_TIME_MS
from slackwater.spark.sources.base import (
    ARRIVAL,
    MALFORMED,
    OFFSET,
    PARTITION,
    QUERY,
    SYSTEM_COLUMNS,
    Range,
)
from slackwater.spark.sources.generator import Generator, generator
from slackwater.spark.sources.generator_reader import GeneratorReader
from slackwater.spark.sources.ysb import ysb, ysb_ads
from slackwater_lab.workloads.late_wishes import DELAYS, delay_of

pytestmark = pytest.mark.spark

START_MS = 1_700_000_000_000
ALL_TIME_MS = START_MS + 3_600_000


def opened(spark: SparkSession, **settings: Any) -> GeneratorReader:
    return generator(**{"start_ms": START_MS, **settings}).open(spark)


def entries(spark: SparkSession, reader: GeneratorReader, *pieces: tuple[int, Range]) -> DataFrame:
    spec = json.dumps([reader.entry(query, piece) for query, piece in pieces])
    frame = spark.createDataFrame([(spec,)], "spec string").coalesce(1)
    return frame.selectExpr(f"explode(from_json(spec, 'array<{reader.entry_type}>')) AS r")


def records(first: int, until: int, partition: int = 0) -> Range:
    return Range(partition, first, until, until - first)


def rows(spark: SparkSession, reader: GeneratorReader, *pieces: Range) -> list[Any]:
    frame = reader.expand(entries(spark, reader, *((0, piece) for piece in pieces)))
    return sorted(frame.drop(MALFORMED).collect(), key=lambda r: (r[PARTITION], r[OFFSET]))


def test_rows_hold_the_schema_and_then_the_system_columns(spark: SparkSession) -> None:
    reader = opened(spark)
    frame = reader.expand(entries(spark, reader, (4, records(0, 3))))
    assert frame.columns == [*reader.schema.names, *SYSTEM_COLUMNS]
    assert reader.schema.names == ["key", "value", "event_time"]
    assert {row[QUERY] for row in frame.collect()} == {4}
    assert [field.dataType for field in frame.schema][:3] == [f.dataType for f in reader.schema]


@pytest.mark.parametrize("gap", ["constant", "gamma"])
def test_any_split_of_a_range_gives_the_same_rows(spark: SparkSession, gap: Any) -> None:
    settings: dict[str, Any] = {"delay": "exp", "gap": gap, "seed": 9, "rate": 700}
    whole = rows(spark, opened(spark, **settings), records(0, 500))
    pieces = [records(0, 1), records(1, 64), records(64, 64), records(64, 333), records(333, 500)]
    assert rows(spark, opened(spark, **settings), *pieces) == whole
    assert rows(spark, opened(spark, **{**settings, "seed": 10}), records(0, 500)) != whole


def test_an_empty_range_gives_no_rows(spark: SparkSession) -> None:
    reader = opened(spark)
    frame = entries(spark, reader, (0, records(7, 7)), (1, records(0, 0)), (2, records(5, 6)))
    assert [row[QUERY] for row in reader.expand(frame).collect()] == [2]
    assert reader.expand_sampled(frame).collect() == []


def test_a_sample_takes_the_same_records_however_ranges_are_cut(spark: SparkSession) -> None:
    reader = opened(spark)
    cut = entries(spark, reader, (0, records(3, 20)), (0, records(20, 21)), (0, records(21, 50)))
    sampled = reader.expand_sampled(cut)
    assert sorted(row[OFFSET] for row in sampled.collect()) == [16, 32, 48]
    assert sampled.columns == reader.expand(cut).columns


@pytest.mark.parametrize("name", DELAYS)
def test_spark_draws_the_delays_that_the_driver_draws(spark: SparkSession, name: str) -> None:
    delay, size = delay_of(name, 20_000), 20_000
    drawn = (
        spark.range(size)
        .selectExpr(f"{UPPER_UNIFORM_SQL.format(h='xxhash64(id)')} AS u")
        .selectExpr(f"{delay.sql('u')} AS ms")
        .toArrow()
    )
    u = upper_uniform(hash64(np.arange(size, dtype=np.uint64)))
    assert drawn["ms"].to_pylist() == delay.draw(u).tolist()


@pytest.mark.parametrize("gap", ["constant", "gamma"])
@pytest.mark.parametrize("rate", [3.0, 1_000.0, 70_001.0])
def test_spark_sees_the_arrivals_that_the_driver_plans_by(
    spark: SparkSession, gap: Any, rate: float
) -> None:
    reader = opened(spark, gap=gap, rate=rate, partitions=3, seed=5)
    ranges = [records(0, 300, partition) for partition in range(3)]
    for row in rows(spark, reader, *ranges):
        stream = reader._streams[row[PARTITION]]
        assert row[ARRIVAL] == stream.arrival_ms(row[OFFSET])


@pytest.mark.parametrize("name", NAMED_DELAYS)
def test_delays_have_their_mean_and_no_event_is_ahead_of_its_arrival(
    spark: SparkSession, name: str
) -> None:
    reader = opened(spark, delay=name, rate=10_000)
    frame = reader.expand(entries(spark, reader, (0, records(0, 50_000))))
    delay = f"{ARRIVAL} - unix_micros(event_time) / 1000D"
    found = frame.selectExpr(f"avg({delay}) AS mean", f"min({delay}) AS least").first()
    assert found is not None
    assert found["least"] >= 0
    # Arrivals are rounded up to whole milliseconds: half a millisecond on average.
    assert found["mean"] == pytest.approx(NAMED_DELAYS[name].mean_ms + 0.5, rel=0.03, abs=0.1)


def test_keys_follow_zipf_with_a_skew_and_are_even_without(spark: SparkSession) -> None:
    for skew, most in ((0.0, 1 / 10), (1.0, 1 / 2.929)):
        reader = opened(spark, keys=10, skew=skew)
        frame = reader.expand(entries(spark, reader, (0, records(0, 40_000))))
        counts = {row["key"]: row["count"] for row in frame.groupBy("key").count().collect()}
        assert set(counts) == set(range(10))
        assert counts[0] / 40_000 == pytest.approx(most, abs=0.01)


@pytest.mark.parametrize("gap", ["constant", "gamma"])
def test_no_record_is_planned_before_it_has_arrived(spark: SparkSession, gap: Any) -> None:
    reader = opened(spark, gap=gap, rate=777, partitions=2)
    positions = {0: 0, 1: 0}
    for now_ms in (START_MS - 5, START_MS + 0.5, START_MS + 13.3, START_MS + 1_000):
        for piece in reader.plan(positions, now_ms, 10**9):
            stream = reader._streams[piece.partition]
            assert piece.until == piece.first or stream.arrival_ms(piece.until - 1) <= now_ms
            assert stream.arrival_ms(piece.until) > now_ms
            positions[piece.partition] = piece.until
        assert sum(positions.values()) == reader.available_one(now_ms)
        assert reader.oldest_arrival_ms(positions, now_ms) is None
    assert sum(positions.values()) == pytest.approx(777, abs=70)


def test_many_readers_are_counted_as_each_by_itself(spark: SparkSession) -> None:
    readers = [
        opened(spark, rate=100 + i, partitions=1 + i % 3, limit=None if i % 2 else 900)
        for i in range(20)
    ]
    for now_ms in (START_MS - 1, START_MS, START_MS + 1_234.5, START_MS + 60_000):
        counts = GeneratorReader.available(readers, now_ms)
        assert counts.tolist() == [reader.available_one(now_ms) for reader in readers]
    readers[3].restore({}, {"start_ms": START_MS + 30_000}, [])
    now_ms = START_MS + 60_000
    assert GeneratorReader.available(readers, now_ms)[3] == readers[3].available_one(now_ms)
    assert GeneratorReader.available([], now_ms).tolist() == []


def test_a_bounded_plan_takes_the_same_share_of_each_partition(spark: SparkSession) -> None:
    reader = opened(spark, rate=300, partitions=3)
    now_ms = START_MS + 9_999.0
    plan = reader.plan({0: 0, 1: 500, 2: 1_000}, now_ms, 150)
    assert [piece.events for piece in plan] == [100, 50, 0]
    assert sum(p.events for p in reader.plan({0: 0, 1: 1, 2: 2}, now_ms, 100)) == 100
    assert sum(p.events for p in reader.plan({0: 0, 1: 1, 2: 2}, now_ms, 0)) == 1
    assert reader.oldest_arrival_ms({0: 990, 1: 500, 2: 1_000}, now_ms) == START_MS + 5_004


def test_a_plan_cut_short_tells_only_watermarks_that_came_before_the_rest(
    spark: SparkSession,
) -> None:
    reader = opened(spark, rate=1_000)
    (whole,) = reader.plan({0: 0}, START_MS + 5_050, 10**6)
    (cut,) = reader.plan({0: 0}, START_MS + 5_050, 1_234)
    (up_to_grid,) = reader.plan({0: 0}, START_MS + 5_050, 1_300)
    assert whole.watermark_ms == START_MS + 5_000
    assert cut.watermark_ms == START_MS + 1_200
    assert up_to_grid.watermark_ms == START_MS + 1_300


@pytest.mark.parametrize("name", ["uniform", "exp", "gamma", "zipf", "lognormal"])
@pytest.mark.parametrize("cut", [False, True])
def test_watermarks_keep_their_promise_for_all_but_a_thousandth(
    spark: SparkSession, name: str, cut: bool
) -> None:
    reader = opened(spark, delay=name, rate=2_000, seed=3)
    events = rows(spark, reader, records(0, 60_000))
    position, watermark_ms, late = 0, 0, 0
    for now_ms in range(START_MS, START_MS + 30_000, 100):
        (piece,) = reader.plan({0: position}, now_ms, 190 if cut else 10**9)
        for row in events[piece.first : piece.until]:
            late += row["event_time"].timestamp() * 1_000 < watermark_ms
        watermark_ms = max(watermark_ms, piece.watermark_ms or 0)
        position = piece.until
    assert position > 50_000
    assert late / position < 0.0015


def test_the_sweep_of_a_query_is_that_of_its_slowest_partition(spark: SparkSession) -> None:
    reader = opened(spark, delay="exp", partitions=4)
    deadline_ms = START_MS + 6_000
    swept_ms = reader.sweep_arrival_ms(deadline_ms)
    assert swept_ms is not None
    told = {
        now_ms: min(piece.watermark_ms or 0 for piece in reader.plan({}, now_ms, 10**9))
        for now_ms in (swept_ms - 1, swept_ms)
    }
    assert told[swept_ms - 1] < deadline_ms <= told[swept_ms]


def test_a_finite_stream_ends_with_the_last_watermark_of_all(spark: SparkSession) -> None:
    reader = opened(spark, rate=1_000, seconds=2, partitions=3, delay="uniform")
    assert reader.available_one(ALL_TIME_MS) == 2_000
    (*_, last_ms) = (stream.end_ms for stream in reader._streams)
    part = reader.plan({}, START_MS + 1_000, 10**9)
    whole = reader.plan({}, ALL_TIME_MS, 10**9)
    assert [p.events for p in whole] == [667, 667, 666]
    assert all((p.watermark_ms or 0) < END_OF_TIME_MS for p in part)
    assert {p.watermark_ms for p in whole} == {END_OF_TIME_MS}
    assert not reader.finished({p.partition: p.until for p in part}, ALL_TIME_MS)
    ends = {p.partition: p.until for p in whole}
    assert reader.finished(ends, ALL_TIME_MS)
    again = reader.plan(ends, ALL_TIME_MS, 10)
    assert {(p.events, p.watermark_ms) for p in again} == {(0, END_OF_TIME_MS)}
    assert reader.sweep_arrival_ms(END_OF_TIME_MS) == max(s.end_ms or 0 for s in reader._streams)
    assert last_ms is not None
    assert last_ms <= START_MS + 2_000


def test_an_endless_stream_never_finishes(spark: SparkSession) -> None:
    assert not opened(spark).finished({0: 10**9}, ALL_TIME_MS)


def test_a_restart_goes_on_with_the_same_stream(spark: SparkSession) -> None:
    first = generator(rate=10, seed=1).open(spark)
    now_ms = first._start_ms + 5_000
    plan = first.plan({}, now_ms, 10**6)
    from_state, from_plan = (generator(rate=10, seed=1).open(spark) for _ in range(2))
    from_state.restore({0: 0}, json.loads(json.dumps(first.state())), [])
    from_plan.restore({0: 0}, None, plan)
    for reader in (from_state, from_plan):
        assert reader.plan({}, now_ms, 10**6) == plan
        assert reader.entry(0, plan[0]) == first.entry(0, plan[0])


@pytest.mark.parametrize("strategy", [bounded("1 second"), punctuated("event_time")])
def test_without_source_watermarks_only_the_end_is_told(spark: SparkSession, strategy: Any) -> None:
    reader = opened(spark, watermark=strategy, limit=100)
    assert reader.trusted
    assert reader.sweep_arrival_ms(START_MS + 50) is None
    assert [p.watermark_ms for p in reader.plan({}, START_MS + 50, 10**6)] == [None]
    assert [p.watermark_ms for p in reader.plan({}, ALL_TIME_MS, 10**6)] == [END_OF_TIME_MS]


def test_readers_fuse_whatever_their_rate_and_seed_but_not_with_other_delays(
    spark: SparkSession,
) -> None:
    key = opened(spark, rate=1, seed=1, delay="exp", watermark_lag="1 second").fusion_key
    assert key == opened(spark, rate=50, seed=2, delay="exp", partitions=4).fusion_key
    assert key != opened(spark, delay="none").fusion_key
    assert key != opened(spark, delay="exp", gap="gamma").fusion_key
    assert key != opened(spark, delay="exp", columns={"key": "key"}).fusion_key
    assert isinstance(hash(key), int)


def test_fused_queries_get_the_rows_they_get_alone(spark: SparkSession) -> None:
    one, other = opened(spark, rate=10, seed=1), opened(spark, rate=999, seed=2)
    piece = records(5, 25)
    spec = json.dumps([one.entry(0, piece), other.entry(1, piece)])
    frame = spark.createDataFrame([(spec,)], "spec string").selectExpr(
        f"explode(from_json(spec, 'array<{one.entry_type}>')) AS r"
    )
    fused = one.expand(frame).drop(MALFORMED).orderBy(OFFSET).collect()
    alone = rows(spark, other, piece)
    assert [r.asDict() | {QUERY: 0} for r in fused if r[QUERY] == 1] == [r.asDict() for r in alone]
    assert [r for r in fused if r[QUERY] == 0] == rows(spark, one, piece)


@pytest.mark.parametrize("gap", ["constant", "gamma"])
@pytest.mark.parametrize("name", ["none", "zipf", "exp"])
def test_a_step_over_one_partition_has_no_shuffle_and_is_compiled(
    spark: SparkSession, name: str, gap: Any
) -> None:
    reader = ysb(delay=name, gap=gap, skew=0.9, start_ms=START_MS).open(spark)
    counted = (
        reader.expand(entries(spark, reader, (0, records(0, 10))))
        .where("event_type = 'view'")
        .join(broadcast(ysb_ads(spark)), "ad_id")
        .groupBy(QUERY, window("event_time", "3 seconds"), "campaign_id")
        .count()
    )
    plan = counted._jdf.queryExecution().executedPlan().toString()
    scan_side = [line for line in plan.splitlines() if "BroadcastExchange" not in line]
    assert not any("Exchange" in line for line in scan_side)
    # Tables must have been folded to constants, and all but the JSON be generated code.
    assert "split(" not in plan
    assert "view" not in plan
    uncompiled = [
        line
        for line in scan_side
        if any(node in line for node in ("Project [", "Filter (", "HashAggregate(", "sequence("))
        and "*(" not in line
    ]
    assert uncompiled == []


def test_ysb_events_are_a_third_views_over_a_hundred_campaigns(spark: SparkSession) -> None:
    reader = ysb(start_ms=START_MS).open(spark)
    frame = reader.expand(entries(spark, reader, (0, records(0, 60_000)))).join(
        ysb_ads(spark), "ad_id"
    )
    kinds = {row[0]: row[1] for row in frame.groupBy("event_type").count().collect()}
    assert kinds.keys() == {"view", "click", "purchase"}
    assert all(count == pytest.approx(20_000, rel=0.03) for count in kinds.values())
    views = frame.where("event_type = 'view'").groupBy("campaign_id").count().collect()
    assert len(views) == 100
    assert all(row["count"] == pytest.approx(200, abs=80) for row in views)
    assert frame.select("ad_id").distinct().count() == 1_000
    assert [f"{f.name} {f.dataType.simpleString()}" for f in reader.schema] == [
        "user_id bigint",
        "page_id bigint",
        "ad_id bigint",
        "ad_type string",
        "event_type string",
        "ip_address string",
        "event_time timestamp",
    ]
    assert frame.where("user_id < 0 OR page_id < 0 OR ad_type IS NULL").isEmpty()
    assert frame.where(r"NOT ip_address RLIKE '^10(\\.[0-9]{1,3}){3}$'").isEmpty()


def test_ysb_campaigns_can_be_skewed(spark: SparkSession) -> None:
    reader = ysb(start_ms=START_MS, skew=1.0).open(spark)
    frame = reader.expand(entries(spark, reader, (0, records(0, 40_000))))
    share = frame.where("ad_id < 10").count() / 40_000
    assert share == pytest.approx(1 / sum(1 / k for k in range(1, 101)), abs=0.01)
    kinds = frame.where("ad_id < 10").groupBy("event_type").count().collect()
    assert all(row["count"] / (40_000 * share) == pytest.approx(1 / 3, abs=0.02) for row in kinds)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0}, "rate=0"),
        ({"delay": "sometimes"}, "delay='sometimes'"),
        ({"delay": 50}, "delay=50"),
        ({"gap": "even"}, "gap='even'"),
        ({"partitions": 0}, "partitions=0"),
        ({"keys": 0}, "keys=0"),
        ({"keys": 20_000, "skew": 1.0}, "keys=20000"),
        ({"skew": -1}, "skew=-1"),
        ({"limit": -1}, "limit=-1"),
        ({"limit": 1, "seconds": 1}, "limit=1.*either"),
        ({"seconds": -1}, "seconds=-1"),
        ({"start_ms": -1}, "start_ms=-1"),
        ({"columns": {"event_time": "n"}}, "event_time.*once"),
        ({"columns": {"_sw_query": "n"}}, "_sw_query"),
        ({"watermark_period": "0 ms"}, "watermark_period"),
    ],
)
def test_an_impossible_description_names_the_field(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        generator(**settings)


def test_a_column_that_spark_cannot_compute_is_told_when_opened(spark: SparkSession) -> None:
    for expression in ("nowhere + 1", "n +"):
        with pytest.raises(DescriptionError, match=r"columns.*write Spark SQL over n, h and key"):
            generator(columns={"x": expression}).open(spark)


def test_ysb_refuses_another_schema() -> None:
    with pytest.raises(DescriptionError, match="columns"):
        ysb(columns={"x": "n"})


def test_a_description_is_hashable_and_says_its_lag() -> None:
    assert generator(delay="exp").watermark_lag_ms == 1_658
    assert generator(delay="exp", watermark_lag="2 seconds").watermark_lag_ms == 2_000
    assert generator(delay=ConstantDelay(7)).watermark_lag_ms == 7
    assert isinstance(hash(generator()), int)
    assert isinstance(generator(), Generator)


def test_helpers_are_computed_one_after_the_other_and_stay_out_of_the_rows(
    spark: SparkSession,
) -> None:
    helpers = {"half": "n div 2", "odd": "n - 2 * half", "both": "half * 10 + odd"}
    reader = opened(spark, helpers=helpers, columns={"half": "half", "digits": "both"})
    assert reader.schema.names == ["half", "digits", "event_time"]
    found = [(row["half"], row["digits"]) for row in rows(spark, reader, records(4, 8))]
    assert found == [(2, 20), (2, 21), (3, 30), (3, 31)]
    assert opened(spark).fusion_key != opened(spark, helpers=helpers).fusion_key


def test_a_helper_that_does_not_work_is_refused(spark: SparkSession) -> None:
    with pytest.raises(DescriptionError, match="helpers='key' cannot be"):
        opened(spark, helpers={"key": "n"})
    with pytest.raises(DescriptionError, match="wrong='no_such_thing'"):
        opened(spark, helpers={"wrong": "no_such_thing"})


@pytest.mark.spark
def test_parameters_travel_with_the_entries_of_each_stream(spark: SparkSession) -> None:
    one, other = (
        opened(spark, columns={"share": "n * step"}, parameters={"step": step}) for step in (2, 0.5)
    )
    assert one.fusion_key == other.fusion_key
    both = json.dumps([one.entry(0, records(0, 3)), other.entry(1, records(0, 3))])
    frame = spark.createDataFrame([(both,)], "spec string").coalesce(1)
    rows = one.expand(
        frame.selectExpr(f"explode(from_json(spec, 'array<{one.entry_type}>')) AS r")
    ).collect()
    assert [row.share for row in rows] == [0, 2, 4, 0, 0.5, 1]


def test_parameters_are_numbers_with_names_of_their_own() -> None:
    with pytest.raises(DescriptionError, match="parameters='key' cannot be"):
        generator(parameters={"key": 1})
    with pytest.raises(DescriptionError, match="parameters\\['step'\\]=nan cannot be"):
        generator(parameters={"step": float("nan")})
    with pytest.raises(DescriptionError, match="helpers='step' cannot be"):
        generator(parameters={"step": 1}, helpers={"step": "n"})
