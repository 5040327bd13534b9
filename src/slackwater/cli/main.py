"""The `slackwater` command: one module per subcommand, errors in one line."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from slackwater.cli.bench import bench
from slackwater.cli.consoles import hide_logs, print_error, show_logs
from slackwater.cli.demo import demo
from slackwater.cli.inject import inject
from slackwater.cli.kafka import app as kafka
from slackwater.cli.report import report
from slackwater.cli.run import run
from slackwater.cli.sampling import sampling
from slackwater.cli.simulate import app as simulate
from slackwater.cli.status import status
from slackwater.errors import SlackwaterError


class _OneLineErrors(TyperGroup):
    """Turn what Slackwater raises on purpose into a message, and let everything else pass."""

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
app.command()(bench)
app.command()(report)
app.command()(inject)
app.command()(sampling)
app.add_typer(simulate, name="simulate")
app.add_typer(kafka, name="kafka")


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
