from __future__ import annotations

from slackwater.simulate.published import WORKLOADS, replayed_row

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
