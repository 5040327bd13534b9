"""Test window queries with a manual clock and scripted events, without sleeping."""

from slackwater.testing.batches import batch_panes
from slackwater.testing.clock import ManualClock
from slackwater.testing.oracle import assert_same_panes
from slackwater.testing.running import run_app
from slackwater.testing.script import Script, scripted

__all__ = [
    "ManualClock",
    "Script",
    "assert_same_panes",
    "batch_panes",
    "run_app",
    "scripted",
]
