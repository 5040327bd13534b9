"""How to reach a Kafka cluster: its servers, and TLS and SASL settings whose values never show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError

from slackwater.errors import DescriptionError

_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")
_HIDDEN: Final = "***"
_SECRET: Final = re.compile("password|secret|token|pem|key")
_HARMLESS: Final = ("security.protocol", "sasl.mechanism", "sasl.mechanisms")
_TIMES: Final = {"socket.connection.setup.timeout.ms": 5_000, "reconnect.backoff.max.ms": 1_000}


@dataclass(frozen=True)
class KafkaSettings:
    """Name a cluster, with further settings of librdkafka's (`security.protocol`, `sasl.*`, ...).

    The values of settings may be secret: they are kept out of what is printed, and out of messages.

    >>> KafkaSettings.of("broker:9092", {"sasl.password": "hush"}, "kafka")
    KafkaSettings(servers='broker:9092', options=['sasl.password'])
    """

    servers: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        servers: str,
        options: Mapping[str, str] | None,
        place: str,
        reserved: Mapping[str, str] | None = None,
    ) -> KafkaSettings:
        """Check what a user wrote; `reserved` settings are not theirs, and say what to do."""
        listed = [server.strip() for server in servers.split(",")] if servers else []
        for server in listed or [servers]:
            if not _SERVER.fullmatch(server or ""):
                raise DescriptionError(
                    f"{place}(servers={servers!r}): {server!r} is no server: write host:port, with "
                    "commas between several"
                )
        taken = {"bootstrap.servers": "give it as servers=", **(reserved or {})}
        for name, value in (options or {}).items():
            if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
                raise DescriptionError(
                    f"{place}(options=...): {name!r} must be the name of a setting of "
                    "librdkafka's, with a text, a number or a truth value"
                )
            if name in taken:
                raise DescriptionError(f"{place}(options=...): {name!r} is set here: {taken[name]}")
        written = {name: _text(value) for name, value in (options or {}).items()}
        return cls(",".join(listed), tuple(sorted(written.items())))

    def __repr__(self) -> str:
        names = [name for name, _ in self.options]
        return f"KafkaSettings(servers={self.servers!r}, options={names})"

    def client(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of a client; further settings go in with underscores for dots.

        What is said at all is said by Slackwater: the library would write to standard error.
        """
        given = {name.replace("_", "."): value for name, value in more.items()}
        quiet = {"client.id": "slackwater", "log_level": 0}
        return {**quiet, **_TIMES, **given, **dict(self.options), "bootstrap.servers": self.servers}

    def told(self, error: KafkaError | Exception | str) -> str:
        """Say what went wrong, without any value of a setting that might be secret."""
        text = error.str() if isinstance(error, KafkaError) else str(error)
        for name, value in self.options:
            if value and (len(value) > 3 or _SECRET.search(name)) and name not in _HARMLESS:
                text = text.replace(value, _HIDDEN)
        return text


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
