"""`slackwater kafka up`: a Kafka broker of one's own, to try things with."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from slackwater.cli.consoles import output, print_note
from slackwater.errors import DescriptionError, MissingRequirementError

app = typer.Typer(help="Run a Kafka broker to try things with.", no_args_is_help=True)


@app.callback()
def kafka() -> None:
    """Run a Kafka broker to try things with."""


@app.command()
def up(
    port: Annotated[
        int | None,
        typer.Option(help="The port to listen on, on this machine alone: 9092, if it is free."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Where records are kept: by default nowhere once the broker ends."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="A topic to create, such as clicks or clicks:4 (partitions); repeatable."
        ),
    ] = None,
) -> None:
    """Start a broker and keep it up until Ctrl-C (its jars are fetched on the first start)."""
    topics = [_parsed(each) for each in topic or []]
    try:
        # Other commands need no client.
        from slackwater.testing.kafka_broker import KafkaBroker, usual_port
    except ModuleNotFoundError as missing:
        raise MissingRequirementError(
            f"`slackwater kafka` needs {missing.name}: pip install 'slackwater[kafka]'"
        ) from missing
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with KafkaBroker(data, usual_port() if port is None else port) as broker:
        known = broker.topics()
        for name, partitions in topics:
            if name not in known:
                broker.create_topic(name, partitions)
        output.print(f"Kafka is up at [bold]{broker.servers}[/bold]", soft_wrap=True)
        for name, partitions in sorted(broker.topics().items()):
            output.print(f"  {name}: {partitions} partition{'s' * (partitions != 1)}")
        print_note("Ctrl-C stops it" + ("; records are not kept" if data is None else ""))
        try:
            broker.wait()
        except KeyboardInterrupt:
            print_note("stopped")


def _parsed(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isdecimal() and int(partitions))):
        raise DescriptionError(f"--topic {text}: write a name, or name:partitions such as clicks:4")
    return name, int(partitions or 1)
