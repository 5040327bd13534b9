from __future__ import annotations

import slackwater
from slackwater import testing


def test_every_public_name_resolves_and_is_documented() -> None:
    for package in (slackwater, testing):
        assert sorted(package.__all__) == sorted(set(package.__all__))
        for name in package.__all__:
            assert getattr(package, name).__doc__, name
