"""`slackwater simulate`: the policies over costs instead of Spark, in a fraction of the time."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from slackwater.app.durations import to_ms
from slackwater.cli.consoles import print_note, print_table
from slackwater.errors import DescriptionError
from slackwater.parsing import read_json
from slackwater.progress.distributions import NAMED_DELAYS, delay_named
from slackwater.scheduling.costs import StepCost
from slackwater.scheduling.policies import POLICIES, policy_named
from slackwater_lab.simulate.clairvoyant import clairvoyant, least_ms
from slackwater_lab.simulate.model import Scenario, StepNoise, rate_for_load, uniform_queries
from slackwater_lab.simulate.published import (
    POLICY_NAMES,
    QUERIES,
    SLOTS,
    WORKLOADS,
    PublishedRow,
    PublishedWorkload,
    calibrated_load,
    replayed_row,
)
from slackwater_lab.simulate.recorded import recorded_costs
from slackwater_lab.simulate.replay import Outcome, replay

app = typer.Typer(
    help="Replay scheduling over recorded or given costs, without Spark.", no_args_is_help=True
)
FORESIGHT = "clairvoyant"


@app.command()
def fleet(
    policies: Annotated[
        str, typer.Option(help=f"With commas between: {', '.join((*POLICIES, FORESIGHT))}.")
    ] = "default,fcfs,deadline,klink",
    queries: Annotated[int, typer.Option(help="Queries at once.", min=1)] = 40,
    distinct: Annotated[int, typer.Option(help="Different pipelines among them.", min=1)] = 10,
    load: Annotated[
        float, typer.Option(help="Share of all slots' time that one pass per window takes.")
    ] = 0.9,
    window: Annotated[str, typer.Option(help="Size of the windows.")] = "3 s",
    slide: Annotated[str | None, typer.Option(help="Slide, if they slide.")] = None,
    delay: Annotated[str, typer.Option(help=f"One of {', '.join(NAMED_DELAYS)}.")] = "uniform",
    fixed_ms: Annotated[float, typer.Option(help="Fixed cost of a step.")] = 40.0,
    per_event_ms: Annotated[float, typer.Option(help="Cost of an event.")] = 0.001,
    costs: Annotated[
        Path | None,
        typer.Option(help="Take costs from a benchmark's JSON (made with --load) instead."),
    ] = None,
    slots: Annotated[int, typer.Option(help="Steps at once.", min=1)] = 2,
    seconds: Annotated[float, typer.Option(help="Time to replay.", min=1)] = 60.0,
    seeds: Annotated[int, typer.Option(help="How many runs to average.", min=1)] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results.")] = None,
) -> None:
    """Compare policies on a fleet of like queries; `clairvoyant` knows the future."""
    size_ms = to_ms(window, "window")
    slide_ms = size_ms if slide is None else to_ms(slide, "slide")
    delay_named(delay)
    known, noise = _costs(costs, fixed_ms, per_event_ms)
    templates = tuple(known[index % len(known)] for index in range(distinct))
    rate = rate_for_load(load, templates, queries=queries, slide_ms=slide_ms, slots=slots)
    names = [name.strip() for name in policies.split(",")]
    for name in names:
        if name != FORESIGHT:
            policy_named(name)
    results = []
    for name in names:
        outcomes = []
        for seed in range(seeds):
            made = uniform_queries(
                count=queries,
                distinct=distinct,
                size_ms=size_ms,
                slide_ms=slide_ms,
                rate=rate,
                delay=delay,
                seed=seed,
                start_within_ms=slide_ms,
            )
            scenario = Scenario(made, templates, slots, seconds, noise=noise, seed=seed)
            foresees = name == FORESIGHT
            outcomes.append(
                clairvoyant(scenario) if foresees else replay(scenario, policy_named(name))
            )
        results.append(_figures(name, outcomes, slots))
    title = f"{queries} queries of {distinct} pipelines, {rate:,.0f} events/s each, load {load:g}"
    _print_fleet(f"{title}, delay {delay}", results)
    print_note(f"no schedule can have a mean below {least_ms(scenario):.0f} ms, noise apart")
    if json_file is not None:
        json_file.write_text(json.dumps(results, indent=2))


@app.command()
def published(
    workloads: Annotated[
        str, typer.Option(help=f"With commas between: {', '.join(w.name for w in WORKLOADS)}.")
    ] = ",".join(workload.name for workload in WORKLOADS),
    minutes: Annotated[
        float, typer.Option(help="Time to replay; the paper ran 20.", min=0.1)
    ] = 20.0,
    nodes: Annotated[
        str, typer.Option(help="Machines that share the queries; several with commas between.")
    ] = "1",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results.")] = None,
) -> None:
    """Replay the evaluation of the Klink paper (SIGMOD 2021), its figures beside ours."""
    known = {workload.name: workload for workload in WORKLOADS}
    asked = [name.strip() for name in workloads.split(",")]
    for name in asked:
        if name not in known:
            raise DescriptionError(f"workloads={name!r} is unknown: use {', '.join(known)}")
    counts = _node_counts(nodes)
    found: list[dict[str, Any]] = []
    for name in asked:
        workload = known[name]
        load = calibrated_load(workload, minutes=minutes)
        rows = _replayed_beside(workload, load, minutes=minutes, counts=counts)
        for count in counts:
            _print_published(workload, load, [row for row in rows if row.nodes == count])
        found += [{"load": load, **asdict(row)} for row in rows]
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=2))


def _node_counts(nodes: str) -> list[int]:
    try:
        counts = [int(count) for count in nodes.split(",")]
    except ValueError:
        counts = []
    if not counts or not all(1 <= count <= QUERIES for count in counts):
        raise DescriptionError(
            f"nodes={nodes!r}: give whole numbers from 1 to {QUERIES} with commas between"
        )
    return sorted(set(counts))


def _print_published(workload: PublishedWorkload, load: float, rows: list[PublishedRow]) -> None:
    """Show what one number of nodes gave; what is published is of one node."""
    base, nodes = rows[0].mean_s, rows[0].nodes
    title = f"{workload.name}: {QUERIES} queries x 10,000 events/s on {nodes} x {SLOTS} cores"
    table = Table(title=title)
    for column in ("policy", "mean", "x default", "p99", "published mean", "x default"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for row in rows:
        paper = row.published_mean_s
        table.add_row(
            row.policy,
            f"{row.mean_s:.2f} s",
            f"{row.mean_s / base:.2f}",
            f"{row.p99_s:.2f} s",
            "" if paper is None else f"{paper:.1f} s",
            "" if paper is None else f"{paper / workload.default_s:.2f}",
        )
    print_table(table)
    if nodes > 1:
        below = workload.distributed_reduction
        stated = (
            "" if below is None else f"; published for 8 nodes: klink {below:.0%} below the others"
        )
        print_note(f"a load of {load / nodes:.3f} on each node{stated}")
        return
    wanted_s = workload.default_s
    reached = "" if base >= 0.9 * wanted_s else ": so short a replay falls less behind"
    print_note(
        f"load {load:.3f}, where default has {base:.2f} s (wanted: {wanted_s:g} s{reached}); "
        f"published: klink {workload.reduction:.0%} below the others"
    )


def _replayed_beside(
    workload: PublishedWorkload, load: float, *, minutes: float, counts: list[int]
) -> list[PublishedRow]:
    """Replay all policies on all numbers of nodes, as many at a time as there are processors."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        replays = [
            pool.submit(replayed_row, workload, load, policy, minutes=minutes, nodes=count)
            for count in counts
            for policy in POLICY_NAMES
        ]
        return [one.result() for one in replays]


def _costs(
    file: Path | None, fixed_ms: float, per_event_ms: float
) -> tuple[tuple[StepCost, ...], StepNoise]:
    if file is None:
        if fixed_ms < 0 or per_event_ms <= 0:
            raise DescriptionError(
                f"fixed_ms={fixed_ms}, per_event_ms={per_event_ms}: give costs above zero"
            )
        cost = StepCost(fixed_ms, per_event_ms, observations=100, most_events=10**7)
        return (cost,), StepNoise()
    try:
        content = read_json(file)
    except (OSError, ValueError) as error:
        raise DescriptionError(
            f"costs={str(file)!r} cannot be read ({error}): give a file that "
            "'slackwater bench ... --load 0.9 --json FILE' wrote"
        ) from error
    calibration = content.get("calibration") if isinstance(content, dict) else None
    return recorded_costs(calibration or {})


def _figures(name: str, outcomes: list[Outcome], slots: int) -> dict[str, Any]:
    """Average several runs."""
    count = len(outcomes)
    span_ms = outcomes[0].span_ms * slots
    return {
        "policy": name,
        "propagation_mean_ms": round(sum(o.mean_ms for o in outcomes) / count, 1),
        "propagation_p99_ms": round(sum(o.percentile_ms(99) for o in outcomes) / count, 1),
        "steps": round(sum(o.steps for o in outcomes) / count),
        "queries_per_step": round(
            sum(o.served for o in outcomes) / max(sum(o.steps for o in outcomes), 1), 2
        ),
        "busy_share": round(sum(o.busy_ms for o in outcomes) / count / span_ms, 3),
        "windows": sum(len(o.propagations_ms) for o in outcomes),
        "unfired": sum(o.unfired for o in outcomes),
        "swm_coverage": outcomes[0].coverage.share,
    }


def _print_fleet(title: str, results: list[dict[str, Any]]) -> None:
    table = Table(title=title, caption="propagation: result out minus closing watermark in")
    for column in (
        "policy",
        "mean",
        "p99",
        "x mean",
        "steps",
        "queries/step",
        "slots busy",
        "unfired",
    ):
        table.add_column(column, justify="left" if column == "policy" else "right")
    base = results[0]["propagation_mean_ms"]
    for result in results:
        table.add_row(
            result["policy"],
            f"{result['propagation_mean_ms']:,.0f} ms",
            f"{result['propagation_p99_ms']:,.0f} ms",
            f"{result['propagation_mean_ms'] / base:.2f}",
            f"{result['steps']:,}",
            f"{result['queries_per_step']:.1f}",
            f"{result['busy_share']:.0%}",
            str(result["unfired"]),
        )
    print_table(table)
