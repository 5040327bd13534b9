"""What transforms are composed of: expressions over `df`, written as a user would write them.

An operation is text, so that a failing composition prints as a program that can be pasted into a
notebook. `names`, `sizes` and `ranges` are static tables; what else they use is in `functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from tests.fuzz import functions


@dataclass(frozen=True)
class Operation:
    """Hold an expression, the columns it needs, and how it changes which there are.

    `drops` that begin with a star are all columns but those named. `stateless` says that it treats
    every row by itself, so that it must not be refused.
    """

    text: str
    needs: frozenset[str]
    adds: frozenset[str]
    drops: frozenset[str]
    stateless: bool


def _op(text: str, needs: str = "", adds: str = "", drops: str = "") -> tuple[str, str, str, str]:
    return text, needs, adds, drops


_PROJECTIONS = [
    _op("df.withColumn('v', F.expr(\"IF(v = 1.5, double('NaN'), v)\"))", "v"),
    _op("df.withColumn('v', F.expr(\"IF(v = 1, double('Infinity'), IF(v > 1, 'NaN', v))\"))", "v"),
    _op(
        "df.withColumn('f', F.when(F.col('f') > 0, F.lit(float('nan'))).otherwise(F.col('f')))", "f"
    ),
    _op('df.withColumn("x", F.col("n") * 2 + F.coalesce("g", F.lit(0)))', "n g", "x"),
    _op('df.withColumns({"k": F.upper("k"), "v": F.col("v") / 3})', "k v"),
    _op("df.selectExpr('*', \"concat_ws('-', k, g) AS kg\")", "k g", "kg"),
    _op('df.withColumn("g", F.expr("CASE WHEN n > 0 THEN g END"))', "n g"),
    _op('df.withColumn("d", F.col("d") * 2)', "d"),
    _op('df.withColumn("s", F.struct("g", "k"))', "g k"),
    _op('df.withColumn("ts", F.expr("ts + INTERVAL 1 SECOND"))'),
    _op('df.withColumn("ts", F.expr("ts - INTERVAL 2500 MILLISECONDS"))'),
    _op('df.withColumn("ts", F.date_trunc("second", "ts"))'),
    _op('df.withColumn("ts", F.expr("IF(g = 1, NULL, ts)"))', "g"),
    _op('df.withColumn("ts", F.col("at"))', "at"),
    _op('df.select("*", "s.*")', "s k", "x y"),
    _op('df.select("*")'),
    _op("df.select(*(F.col(f'`{c}`') for c in df.columns if '`' not in c))"),
    _op('df.select("ts", "k", "g", "v", "n")', "k g v n", "", "* k g v n"),
    _op(
        'df.select("_sw_query", "ts", "k", "n") if "_sw_query" in df.columns else '
        'df.select("ts", "k", "n")',
        "k n",
        "",
        "* k n",
    ),
    _op('df.selectExpr("* EXCEPT (d)")', "d", "", "d"),
    _op('df.alias("e").select("e.*")'),
    _op('df.alias("e").where("e.n IS NOT NULL")', "n"),
    _op('df.drop("b", "m")', "b m", "", "b m"),
    _op('df.drop("no such column")'),
    _op('df.withColumnRenamed("v", "w")', "v", "w", "v"),
    _op('df.withColumnsRenamed({"n": "number", "k": "key"})', "n k", "number key", "n k"),
    _op("df.withColumnsRenamed({c: c for c in df.columns})"),
    _op("df.toDF(*df.columns)"),
    _op("df.to(df.schema)"),
    _op('df.withMetadata("k", {"unit": "none"})', "k"),
    _op("df.transform(lambda it: it)"),
    _op('df.withColumn("h", F.xxhash64("k", "n"))', "k n", "h"),
    _op('df.withColumn("json", F.to_json("s"))', "s", "json"),
    _op('df.withColumn("b", F.encode("k", "utf-8"))', "k"),
    _op('df.withColumn("m", F.create_map(F.lit("k"), F.col("g")))', "g"),
    _op('df.withColumn("tags", F.transform("tags", lambda t: F.upper(t)))', "tags"),
    _op('df.withColumn("late", F.expr("ts < timestamp\'2024-01-01 00:00:05\'"))', "", "late"),
    _op("df.selectExpr('*', '`tick``ed` AS `a``b`')", "tick`ed", "a`b"),
    _op("df.withColumn('dot.ted', F.col('`dot.ted`') + 1)", "dot.ted"),
    _op(
        "df.withColumnRenamed('Mixed Case', 'mixed.Case')", "Mixed Case", "mixed.Case", "Mixed Case"
    ),
    _op("df.withColumn('c', F.upper('c'))", "c"),
    _op("df.withColumn('f', F.col('f') / 3)", "f"),
    _op("df.withColumn('day', F.date_add('day', 1))", "day"),
    _op("df.withColumn('ünï', F.col('ünï') - 1)", "ünï"),
]
_FILTERS = [
    _op('df.where("n > 0")', "n"),
    _op('df.where("g IS NULL OR g <> 1")', "g"),
    _op('df.filter(F.col("k").isin("a", "b"))', "k"),
    _op("df.where(\"v = double('NaN')\")", "v"),
    _op('df.where("v = 0")', "v"),
    _op('df.where("flag")', "flag"),
    _op('df.where("d > 1.2")', "d"),
    _op('df.where("size(tags) > 0")', "tags"),
    _op('df.where("s.x = 1")', "s"),
    _op("df.where(\"ts >= timestamp'2024-01-01 00:00:04'\")"),
    _op('df.where("false")'),
    _op("df.where(\"c = 'ann'\")", "c"),
    _op("df.where('`dot.ted` = 1')", "dot.ted"),
    _op('df.na.drop(subset=["k"])', "k"),
    _op('df.na.drop(thresh=1, subset=["g", "n"])', "g n"),
]
_WHOLE = [
    _op('df.na.drop("any")'),
    _op('df.na.drop("all")'),
    _op("df.na.drop(thresh=9)"),
    _op("df.na.drop(thresh=len(df.columns) - 2)"),
    _op("df.fillna(0)"),
    _op("df.fillna(1.5)"),
    _op('df.fillna("none")'),
    _op("df.na.fill(True)"),
    _op('df.fillna({"g": 1, "k": "?"})', "g k"),
    _op("df.replace(1, 0)"),
    _op("df.replace(list(range(24)), list(range(1, 25)))"),
    _op("df.replace([0, 1, 2], [1, 2, 0])"),
    _op('df.replace("a", "z")'),
    _op('df.replace({"a": "b", "b": None})'),
    _op('df.replace(1, 5, subset=["g"])', "g"),
    _op("df.na.replace(float('nan'), 0.0)"),
]
_EXPLODED = [
    _op('df.select("*", F.explode("tags").alias("tag"))', "tags", "tag"),
    _op('df.select("*", F.explode_outer("tags").alias("tag"))', "tags", "tag"),
    _op('df.select("*", F.posexplode("tags"))', "tags", "pos col"),
    _op('df.select("*", F.explode("m"))', "m", "key value"),
    _op('df.withColumn("e", F.explode(F.sequence(F.lit(1), F.coalesce("g", F.lit(1)))))', "g", "e"),
    _op('df.selectExpr("*", "stack(2, g, 7) AS piled")', "g", "piled"),
    _op('df.selectExpr("*", "inline(array(struct(1 AS i), struct(2 AS i)))")', "", "i"),
    _op('sql(df, "SELECT * FROM {df} LATERAL VIEW OUTER explode(tags) AS tag")', "tags", "tag"),
    _op('df.lateralJoin(spark.tvf.explode(F.col("tags").outer()))', "tags", "col"),
    _op(
        'df.unpivot(["ts", "k"], ["n", "g"], "what", "amount")',
        "k n g",
        "what amount",
        "* k",
    ),
    _op(
        'df.melt([c for c in df.columns if c not in ("n", "g")], ["n", "g"], "what", "amount")',
        "n g",
        "what amount",
        "n g",
    ),
]
_STATIC = [
    _op('df.join(names, "k")', "k", "label"),
    _op('df.join(names, "k", "left")', "k", "label"),
    _op('df.join(names, "k", "left_semi")', "k"),
    _op('df.join(names, "k", "left_anti")', "k"),
    _op('df.join(F.broadcast(names), "k", "left")', "k", "label"),
    _op('df.join(F.broadcast(sizes), "g")', "g", "size"),
    _op('names.join(df, "k")', "k", "label"),
    _op('names.join(df, "k", "right")', "k", "label"),
    _op('F.broadcast(names).join(df, "k", "right")', "k", "label"),
    _op("df.crossJoin(ranges)", "", "r"),
    _op("ranges.crossJoin(df)", "", "r"),
    _op("df.join(ranges)", "", "r"),
    _op('df.join(ranges, F.expr("r < n"))', "n", "r"),
    _op('df.join(ranges, F.expr("r < n"), "left")', "n", "r"),
    _op(
        'df.join(sizes.withColumnRenamed("g", "g2"), F.col("g").eqNullSafe(F.col("g2")), "left")',
        "g",
        "g2 size",
    ),
    _op('df.join(names.hint("merge"), "k")', "k", "label"),
    _op('df.join(names.hint("shuffle_hash"), "k", "left")', "k", "label"),
    _op('df.join(names.hint("shuffle_replicate_nl"), "k")', "k", "label"),
    _op('df.hint("broadcast").join(names, "k")', "k", "label"),
    _op(
        'df.join(names.groupBy("k").agg(F.count("label").alias("many")), "k", "left")', "k", "many"
    ),
    _op('df.join(names.distinct().orderBy("k").limit(1), "k", "left")', "k", "label"),
    _op(
        'df.join(names.join(sizes, F.expr("length(k) = g")).drop("g"), "k", "left")',
        "k",
        "label size",
    ),
    _op('df.join(names.cache(), "k", "left")', "k", "label"),
    _op('df.join(F.broadcast(names.localCheckpoint()), "k", "left")', "k", "label"),
    _op('df.join(names.union(names), "k", "left")', "k", "label"),
    _op('df.join(by_mapped_rdd(names), "k", "left")', "k", "label"),
    _op('sql(df, "SELECT * FROM {df} JOIN {names} USING (k)", names=names)', "k", "label"),
    _op('sql(df, "SELECT * FROM {df} NATURAL LEFT JOIN {names}", names=names)', "k", "label"),
    _op('df.join(names.withColumnRenamed("k", "c"), "c", "left")', "c", "label"),
]
_FUNCTIONS = [
    _op('df.withColumn("long", py_length("k"))', "k", "long"),
    _op('df.withColumn("long", arrow_length("k"))', "k", "long"),
    _op('df.where(py_length("k") > 0)', "k"),
    _op('df.withColumn("half", pandas_half("v"))', "v", "half"),
    _op('df.withColumn("half", pandas_half_each("v"))', "v", "half"),
    _op('df.withColumn("n", arrow_next("n"))', "n"),
    _op('df.withColumn("half", pandas_half(py_length("k").cast("double")))', "k", "half"),
    _op('df.select("*", F.explode(py_words("k")).alias("word"))', "k", "word"),
    _op("in_pandas(df)", "k n", "", "* k n"),
    _op("in_arrow(df)"),
    _op('in_arrow(df, "ts", "k", "n")', "k n", "", "* k n"),
    _op('df.join(names.withColumn("long", py_length("label")), "k", "left")', "k", "label long"),
]
_SUBQUERIES = [
    _op('sql(df, "SELECT * FROM {df} WHERE k IN (SELECT k FROM {names})", names=names)', "k"),
    _op(
        'sql(df, "SELECT * FROM {df} WHERE k NOT IN (SELECT k FROM {names} WHERE k IS NOT NULL)", '
        "names=names)",
        "k",
    ),
    _op(
        'sql(df, "SELECT * FROM {df} e WHERE EXISTS (SELECT 1 FROM {sizes} s WHERE s.g = e.g)", '
        "sizes=sizes)",
        "g",
    ),
    _op(
        'sql(df, "SELECT * FROM {df} e WHERE NOT EXISTS (SELECT 1 FROM {sizes} s WHERE s.g = e.g '
        'AND s.size > 10)", sizes=sizes)',
        "g",
    ),
    _op(
        'sql(df, "SELECT *, (SELECT max(size) FROM {sizes}) AS top FROM {df}", sizes=sizes)',
        "",
        "top",
    ),
    _op(
        'sql(df, "SELECT *, (SELECT max(size) FROM {sizes} s WHERE s.g = e.g) AS top FROM {df} e", '
        "sizes=sizes)",
        "g",
        "top",
    ),
    _op(
        'sql(df, "SELECT * FROM {df} e, LATERAL (SELECT size FROM {sizes} s WHERE s.g = e.g)", '
        "sizes=sizes)",
        "g",
        "size",
    ),
    _op('sql(df, "SELECT * FROM {df} e, LATERAL (SELECT e.n + 1 AS next)")', "n", "next"),
    _op('df.where(F.col("n") < sizes.select(F.max("size")).scalar())', "n"),
    _op('df.where(F.col("k").isin(names.select("k")))', "k"),
    _op('sql(df, "WITH e AS (SELECT * FROM {df}) SELECT * FROM e WHERE n > 0")', "n"),
    _op('sql(df, "WITH e AS (SELECT * FROM {df}) SELECT * FROM e UNION ALL SELECT * FROM e")'),
    _op('by_view(df, "SELECT * FROM events WHERE g IS NOT NULL")', "g"),
    _op('by_view(df, "SELECT *, upper(k) AS shout FROM events")', "k", "shout"),
]
_UNIONS = [
    _op("df.union(df)"),
    _op('df.unionByName(df.where("n > 0"))', "n"),
    _op('df.unionByName(df.withColumn("extra", F.lit(1)), allowMissingColumns=True)', "", "extra"),
    _op('df.where("g = 1").unionAll(df.where("g <> 1"))', "g"),
]
_PLACED = [
    _op("df.repartition(3)"),
    _op('df.repartition("k")', "k"),
    _op('df.repartitionByRange(2, "n")', "n"),
    _op("df.coalesce(1)"),
    _op('df.hint("rebalance")'),
    _op('df.hint("coalesce", 1)'),
    _op('df.withWatermark("ts", "1 minute")'),
]
_TIMED = [
    _op('df.where("current_timestamp() > ts")'),
    _op('df.where(F.current_date() > F.lit("2024-06-01"))'),
    _op("df.where(\"timestamp'now' > ts\")"),
    _op("df.where(\"CAST('now' AS TIMESTAMP) > ts\")"),
    _op("df.withColumn('x', F.expr(\"date'today' > date'2024-06-01'\"))", "", "x"),
    _op('df.withColumn("x", F.expr("int(rand())"))', "", "x"),
    _op("df.where(F.rand(7) < 2)"),
    _op('df.withColumn("x", F.expr("length(uuid())"))', "", "x"),
    _op('df.withColumn("x", F.expr("current_user()"))', "", "x"),
]
# Treat rows together, repeat a static table's, or have Spark run when they are called.
_STATEFUL = [
    _op('df.join(names, "k", "right")', "k", "label"),
    _op('df.join(names, "k", "full")', "k", "label"),
    _op('names.join(df, "k", "left")', "k", "label"),
    _op('names.join(df, "k", "full")', "k", "label"),
    _op('names.join(df.select("k", "ts", "n"), "k", "left_semi")', "k n", "", "* k"),
    _op(
        'names.join(df, "k", "left_anti").withColumn("ts", F.lit(None).cast("timestamp"))',
        "k",
        "label",
        "* k",
    ),
    _op('df.join(df.select("k").withColumnRenamed("k", "j"), F.expr("k = j"))', "k", "j"),
    _op('df.join(df.groupBy("k").agg(F.count("*").alias("many")), "k")', "k", "many"),
    _op('df.join(F.broadcast(df.cache().select("g").distinct()), "g")', "g"),
    _op('names.join(F.broadcast(df.cache()), "k")', "k", "label"),
    _op('df.crossJoin(df.agg(F.max("n").alias("top")))', "n", "top"),
    _op(
        'df.unionByName(df.sparkSession.createDataFrame([("z",)], "k string"), '
        "allowMissingColumns=True)",
        "k",
    ),
    _op(
        'names.withColumn("ts", F.lit("2024-01-01 00:00:05").cast("timestamp"))'
        ".unionByName(df, allowMissingColumns=True)",
        "k",
        "label",
    ),
    _op("df.distinct()"),
    _op('df.dropDuplicates(["k", "g", "n", "v"])', "k g n v"),
    _op('df.intersect(df.where("n > 0"))', "n"),
    _op("df.intersectAll(df)"),
    _op('df.subtract(df.where("n > 0"))', "n"),
    _op('df.exceptAll(df.where("n > 0"))', "n"),
    _op('df.orderBy("ts", F.desc("n"))', "n"),
    _op('df.sortWithinPartitions("n")', "n"),
    _op('df.groupBy("k").agg(F.max("ts").alias("ts"), F.sum("n").alias("n"))', "k n", "", "* k n"),
    _op(
        'df.groupBy(F.window("ts", "2 seconds"), "k").agg(F.max("ts").alias("ts"))',
        "k",
        "window",
        "* k",
    ),
    _op('df.groupBy("ts").pivot("k", ["a", "b"]).sum("n")', "k n", "a b", "*"),
    _op('df.cube("ts", "k").count()', "k", "count", "* k"),
    _op('df.rollup("ts").agg(F.count("*").alias("many"))', "", "many", "*"),
    _op('df.agg(F.max("ts").alias("ts"), F.count("*").alias("many"))', "", "many", "*"),
    _op(
        'df.withColumn("rank", F.rank().over(Window.partitionBy("k").orderBy("ts", "n")))',
        "k n",
        "rank",
    ),
    _op('df.withColumn("so_far", F.sum("n").over(Window.orderBy("ts")))', "n", "so_far"),
    _op('df.withColumn("mean", pandas_mean("v").over(Window.partitionBy("k")))', "k v", "mean"),
    _op("df.where(F.monotonically_increasing_id() >= 0)"),
    _op("df.where(F.spark_partition_id() >= 0)"),
    _op('df.withColumn("x", F.input_file_name())', "", "x"),
    _op('df.lateralJoin(parts(F.col("k").outer()))', "k", "part"),
    _op("df.cache()"),
    _op('df.persist().where("n IS NOT NULL")', "n"),
    _op("df.localCheckpoint()"),
    _op("df.localCheckpoint(eager=False)"),
    _op("df.checkpoint()"),
    _op("df.checkpoint(eager=False)"),
    _op("by_rdd(df)"),
    _op("by_mapped_rdd(df)"),
    _op("by_cached_rdd(df)"),
    _op('df.withColumn("total", F.lit(df.count()))', "", "total"),
    _op("df.where(F.lit(not df.isEmpty()))"),
    _op('df.where(F.col("k").isin([row.k for row in df.select("k").collect()]))', "k"),
    _op(
        'df.join(spark.createDataFrame(df.select("k").toPandas(), "k string"), "k", "left_semi")',
        "k",
    ),
    _op('df.where(F.col("n") < df.select(F.max("n")).scalar())', "n"),
    _op('df.where(F.col("k").isin(df.where("n > 0").select("k")))', "k n"),
    _op('df.where(df.where("g = 1").exists())', "g"),
    _op('sql(df, "SELECT * FROM {df} WHERE n = (SELECT max(n) FROM {df})")', "n"),
    _op('sql(df, "SELECT * FROM {df} WHERE k IN (SELECT k FROM {df} WHERE n > 0)")', "k n"),
    _op('sql(df, "SELECT * FROM {df} e WHERE EXISTS (SELECT 1 FROM {df} o WHERE o.n > e.n)")', "n"),
    _op(
        'sql(df, "SELECT * FROM {df} e, LATERAL (SELECT count(*) AS many FROM {df} o '
        'WHERE o.k = e.k)")',
        "k",
        "many",
    ),
    _op(
        'sql(df, "WITH t AS (SELECT k, count(*) AS many FROM {df} GROUP BY k) '
        'SELECT * FROM {df} JOIN t USING (k)")',
        "k",
        "many",
    ),
    _op(
        'sql(df, "WITH e AS (SELECT ts, k FROM {df}) SELECT max(ts) AS ts, k FROM e GROUP BY k")',
        "k",
        "",
        "* k",
    ),
    _op('by_view(df, "SELECT DISTINCT * FROM events")'),
    _op('by_view(df, "SELECT e.* FROM events e JOIN events o ON e.n = o.n")', "n"),
    _op('df.withColumn("x", F.lit(len(df.columns)))', "", "x"),
    _op('df.withColumn("x", F.to_json(F.struct("*")))', "", "x"),
    _op('df.withColumn("x", F.expr("hash(*)"))', "", "x"),
    _op(
        'df.unpivot(["ts"], [c for c in df.columns if c in ("g", "_sw_query")], "what", "amount")',
        "g",
        "what amount",
        "*",
    ),
]
# Keep some rows and not others, which ones is left to Spark.
_ARBITRARY = [
    _op('df.dropDuplicates(["k"])', "k"),
    _op("df.limit(3)"),
    _op('by_view(df, "SELECT * FROM events ORDER BY ts, n LIMIT 4")', "n"),
    _op('df.orderBy("ts", "n").limit(5)', "n"),
    _op("df.offset(2)"),
    _op("df.sample(0.999999, seed=3)"),
    _op("df.sample(True, 3.0, seed=3)"),
    _op("df.randomSplit([1.0, 1.0], seed=3)[0]"),
    _op(
        'df.select("ts", "k", "n").groupBy("k").applyInPandas(first_of, '
        '"ts timestamp, k string, n bigint")',
        "k n",
        "",
        "* k n",
    ),
    _op(
        'df.select("ts", "k").groupBy("k").cogroup(names.groupBy("k"))'
        '.applyInPandas(first_of_both, "ts timestamp, k string")',
        "k",
        "",
        "* k",
    ),
]


def _listed(rows: Sequence[tuple[str, str, str, str]], *, stateless: bool) -> list[Operation]:
    def names(text: str) -> frozenset[str]:
        return frozenset({"Mixed Case"} if text == "Mixed Case" else text.split())

    return [
        Operation(text, names(needs), names(adds), names(drops), stateless)
        for text, needs, adds, drops in rows
    ]


STATELESS: Final = _listed(
    [
        *_PROJECTIONS,
        *_FILTERS,
        *_WHOLE,
        *_EXPLODED,
        *_STATIC,
        *_FUNCTIONS,
        *_SUBQUERIES,
        *_UNIONS,
        *_PLACED,
        *_TIMED,
    ],
    stateless=True,
)
STATEFUL: Final = _listed(_STATEFUL, stateless=False)
ARBITRARY: Final = _listed(_ARBITRARY, stateless=False)


def scope(spark: SparkSession) -> dict[str, Any]:
    """Return what operations can use besides `df`."""
    tables: dict[str, DataFrame] = {
        "names": spark.createDataFrame(
            [("a", "ay"), ("b", "bee"), ("b", "bumble"), (None, "none"), ("z", None)],
            "k string, label string",
        ),
        "sizes": spark.createDataFrame([(0, 5), (1, 50), (7, 500)], "g int, size int"),
        "ranges": spark.range(3).withColumnRenamed("id", "r"),
    }
    return {**vars(functions), **tables, "spark": spark, "F": F, "Window": Window}
