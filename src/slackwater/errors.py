"""The one family of exceptions; each says what the operator should do."""

from __future__ import annotations


class SlackwaterError(Exception):
    """Stand at the root of everything Slackwater raises on purpose."""


class DescriptionError(SlackwaterError, ValueError):
    """Report a description that cannot work: fix the named field and build it again."""


class JournalError(SlackwaterError):
    """Report a journal that cannot be used as it is: the message says what to do about it."""


class JournalLockedError(JournalError):
    """Report a journal in use by a running process: stop that one, or use another directory."""


class JournalVersionError(JournalError):
    """Report a journal written by a newer Slackwater: upgrade, or use another directory."""


class IncompatibleQueryError(JournalError):
    """Report a query that cannot continue from its journaled state: undo the change or reset it."""


class StateError(SlackwaterError):
    """Report window state that cannot be used as it is: the message says what to do about it."""


class QuarantinedError(SlackwaterError):
    """Report queries that were stopped: mend what each was stopped for, and resume it."""


class SparkLostError(SlackwaterError):
    """Report that Spark is gone: start the process again, and all queries go on."""


class StepOverdueError(SlackwaterError):
    """Report a step that took longer than it may: mend what it waits for and resume the query."""


class UnavailableError(SlackwaterError):
    """Report what cannot be reached for now: nothing need be done, its steps are tried again."""


class SinkError(SlackwaterError):
    """Report a sink that did not take its panes: mend it (space, rights) and resume the query."""


class SinkUnavailableError(SinkError, UnavailableError):
    """Report a sink that cannot be reached for now: its queries wait, and nothing is lost."""


class SourceError(SlackwaterError):
    """Report input that cannot be read: mend the source and resume the query."""


class MissingRequirementError(SlackwaterError):
    """Report something missing on this machine or session: provide what the message names."""
