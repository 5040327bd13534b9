from __future__ import annotations

import pytest

from slackwater.app.checks import check_names
from slackwater.errors import DescriptionError


@pytest.mark.parametrize("name", ["query", "Query", "WINDOW_START", "Pane", "_SW_slice"])
def test_names_of_every_pane_are_refused_in_whatever_case(name: str) -> None:
    with pytest.raises(DescriptionError, match=f"by: '{name}' is a name that Slackwater puts"):
        check_names(["user", name], "by")


def test_names_that_spark_takes_for_one_another_are_refused() -> None:
    with pytest.raises(DescriptionError, match="by: 'user' and 'User' differ in case only"):
        check_names(["user", "shop", "User"], "by")
    with pytest.raises(DescriptionError, match="by: 'user' is named twice"):
        check_names(["user", "shop", "user"], "by")
    check_names(["user", "shop", "queries"], "by")
