"""The `slackwater` command: one module per subcommand, errors in one line."""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from slackwater.cli.consoles import hide_logs, print_error, show_logs
from slackwater.cli.demo import demo
from slackwater.cli.kafka import app as kafka
from slackwater.cli.run import run
from slackwater.cli.status import status
from slackwater.errors import MissingRequirementError, SlackwaterError

logger = logging.getLogger("slackwater")

_OF_THE_LABORATORY = ("bench", "inject", "report", "sampling", "simulate")


class _OneLineErrors(TyperGroup):
    """Turn what Slackwater raises on purpose into a message, and let everything else pass."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Say what to install for a command of the laboratory, where that is missing."""
        if args and args[0] in _OF_THE_LABORATORY and self.get_command(ctx, args[0]) is None:
            raise MissingRequirementError(
                f"`slackwater {args[0]}` comes with the laboratory: pip install slackwater-lab"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # click's Context, or that of the click in newer typers
        try:
            return super().invoke(ctx)
        except SlackwaterError as error:
            if ctx.params.get("debug"):
                raise
            print_error(str(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    name="slackwater",
    cls=_OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # it would print local variables, and secrets with them
    rich_markup_mode="rich",
)
app.command()(demo)
app.command()(run)
app.command()(status)
app.add_typer(kafka, name="kafka")


def _add_installed_commands() -> None:
    """Add the commands that other installed packages bring: the laboratory has five.

    An entry point of the group `slackwater.commands` names a function, or a Typer app for a group.
    """
    for found in sorted(entry_points(group="slackwater.commands")):
        try:
            command = found.load()
        except ImportError as error:  # the other commands work all the same
            logger.warning("`slackwater %s` cannot be loaded: %s", found.name, error)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=found.name)
        else:
            app.command(found.name)(command)


_add_installed_commands()


def _print_version(wanted: bool) -> None:
    if wanted:
        try:
            found = version("slackwater")
        except PackageNotFoundError:
            found = "(not installed: run from its source)"
        typer.echo(f"slackwater {found}")
        raise typer.Exit


@app.callback()
def main(
    ctx: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what Slackwater does, not only problems.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from (traceback).")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Run many event-time window queries on one Spark, each result on time."""
    handler = show_logs(verbose=verbose or debug)
    ctx.call_on_close(lambda: hide_logs(handler))
