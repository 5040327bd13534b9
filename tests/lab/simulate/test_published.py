from __future__ import annotations

from slackwater_lab.simulate.published import QUERIES, WORKLOADS, paper_scenario, replayed_row

YSB = WORKLOADS[0]


def test_least_slack_first_is_no_worse_than_the_default_when_overloaded() -> None:
    default, klink = (
        replayed_row(YSB, 1.05, policy, minutes=0.1) for policy in ("default", "klink")
    )
    assert 0 < klink.mean_s <= default.mean_s
    assert (klink.published_mean_s, default.published_mean_s) == (
        YSB.mean_s["klink"],
        YSB.mean_s["default"],
    )
    assert klink.unfired <= default.unfired


def test_nodes_share_the_queries_and_what_each_of_them_has_to_do() -> None:
    whole = paper_scenario(YSB, 1.0, minutes=0.1)
    parts = [paper_scenario(YSB, 1.0, minutes=0.1, node=node, nodes=8) for node in range(8)]
    assert [len(part.queries) for part in parts] == [QUERIES // 8] * 8
    starts = sorted(query.start_ms for part in parts for query in part.queries)
    assert starts == sorted(query.start_ms for query in whole.queries)
    assert {part.costs for part in parts} == {whole.costs}


def test_more_nodes_are_faster_and_no_published_mean_is_theirs() -> None:
    one, two = (replayed_row(YSB, 1.05, "klink", minutes=0.1, nodes=nodes) for nodes in (1, 2))
    assert two.mean_s < one.mean_s
    assert (one.published_mean_s, two.published_mean_s) == (YSB.mean_s["klink"], None)
