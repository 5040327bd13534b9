"""A real Kafka broker as a child process, for tests and for a first try: no docker, no install."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from slackwater.errors import DescriptionError, SlackwaterError
from slackwater.spark.maven import jars, java_command

KAFKA: Final = "org.apache.kafka:kafka_2.13:4.3.1"
LOGGING: Final = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
USUAL_PORT: Final = 9092
_KEEPER: Final = Path(__file__).with_name("kafka_keeper.py")
_HEAP: Final = ("-Xmx320m", "-Xms96m", "-XX:+UseSerialGC")
_READY_S: Final = 60.0
_END_S: Final = 30.0
_ADMIN_S: Final = 30.0
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A topic comes to be when somebody says so; else asking for a deleted one would create it.
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # After a crash the controller lets a broker in again when its old session is over (9 s).
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    # What a small heap and two cores can carry.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.dedupe.buffer.size": 8_388_608,
    # Records may be about the past, and are none the worse for it; a topic may say otherwise.
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 1_000,
    "log.cleaner.backoff.ms": 1_000,
}


class KafkaBroker:
    """Run one broker of Apache Kafka in KRaft mode on this machine, reachable from it alone.

    Without `data` its records live in a temporary directory and go with `close()`; without `port`
    it takes a free one. It can be stopped and started again with its records on the same port. It
    ends when this process does, however that ends. `settings` are the broker's own.

        with KafkaBroker() as broker:
            broker.create_topic("clicks", partitions=2)
            ... broker.servers ...
    """

    def __init__(
        self,
        data: str | Path | None = None,
        port: int | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if port is not None and not 0 < port < 65_536:
            raise DescriptionError(f"port={port!r} must be between 1 and 65535")
        if data is not None and Path(data).exists() and not Path(data).is_dir():
            raise DescriptionError(f"data={str(data)!r} is a file: name a directory for records")
        self._temporary = data is None
        self.data = Path(tempfile.mkdtemp(prefix="slackwater-kafka-") if data is None else data)
        self.port = port or _free_port()
        self._controller_port = _free_port()
        self._settings = settings or {}
        self._keeper: subprocess.Popen[str] | None = None
        self._admin: AdminClient | None = None

    @property
    def servers(self) -> str:
        """Return the address that clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """Return the file that the broker logs to."""
        return self.data / "broker.log"

    def start(self) -> Self:
        """Start the broker, and return once it answers a client."""
        if self._keeper is not None:
            raise SlackwaterError(f"the broker at {self.servers} is running already")
        (self.data / "records").mkdir(parents=True, exist_ok=True)
        self._write_settings()
        if not (self.data / "records" / "meta.properties").exists():
            self._format()
        removed = ("--temporary", str(self.data)) if self._temporary else ()
        self._keeper = subprocess.Popen(
            [
                *(sys.executable, "-I", str(_KEEPER), "--log", str(self.log), *removed),
                *self._java("kafka.Kafka", str(self.data / "server.properties")),
            ],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us, and we stop the broker in order
        )
        try:
            self._await_answer()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker in an orderly way; its records stay."""
        self._end("stop")

    def kill(self) -> None:
        """Stop the broker as a crash would; its records stay."""
        self._end("kill")

    def close(self) -> None:
        """Stop the broker, and remove its records if they are temporary."""
        self._end("kill" if self._temporary else "stop")
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def create_topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        """Create a topic; its settings go in with underscores for dots (`retention_ms=1000`)."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, partitions, 1, config=settings)
        self._managed(self.admin.create_topics([topic]), name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        self._managed(self.admin.delete_topics([name]), name, None)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, up to `total`."""
        self._managed(self.admin.create_partitions([NewPartitions(name, total)]), name, total)

    def topics(self) -> dict[str, int]:
        """Return the topics that users made, with the number of their partitions."""
        found = self.admin.list_topics(timeout=_ADMIN_S).topics
        return {
            name: len(topic.partitions)
            for name, topic in found.items()
            if not name.startswith("__")
        }

    def wait(self) -> None:
        """Wait until the broker ends by itself, and say so."""
        if self._keeper is not None:
            raise self._ended(self._keeper.wait())

    @property
    def admin(self) -> AdminClient:
        """Return a client that manages topics."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._admin

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _managed(self, futures: dict[str, Any], name: str, partitions: int | None) -> None:
        """Wait until the broker has done something to a topic, and tells so to clients."""
        futures[name].result(_ADMIN_S)
        until = time.monotonic() + _ADMIN_S
        while self.topics().get(name) != partitions:
            if time.monotonic() >= until:
                raise self._ended(None)
            time.sleep(0.01)

    def _write_settings(self) -> None:
        settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": self.data / "records",
            **self._settings,
        }
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (self.data / "server.properties").write_text("".join(lines))

    def _format(self) -> None:
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        settings = str(self.data / "server.properties")
        command = ["format", f"--cluster-id={identity}", "--config", settings]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *command),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SlackwaterError(
                f"{self.data} cannot hold a broker's records: {(done.stderr or done.stdout)[-500:]}"
            )

    def _identity(self) -> str | None:
        lines = (self.data / "records" / "meta.properties").read_text().splitlines()
        pairs = dict(line.split("=", 1) for line in lines if "=" in line)
        return pairs.get("cluster.id")

    def _java(self, main: str, *arguments: str) -> Sequence[str]:
        classpath = ":".join(map(str, jars(KAFKA, LOGGING)))
        logging = f"-Dlog4j2.configurationFile={_KEEPER.with_name('kafka_log4j2.properties')}"
        return [java_command(), *_HEAP, logging, "-cp", classpath, main, *arguments]

    def _await_answer(self) -> None:
        """Ask as a client until there is an answer; the process may end instead."""
        assert self._keeper is not None
        until = time.monotonic() + _READY_S
        while True:
            with suppress(KafkaException):
                # Another broker may be the one that answers on this port.
                if self.admin.list_topics(timeout=1.0).cluster_id == self._identity():
                    return
            ended = self._keeper.poll()
            if ended is not None or time.monotonic() >= until:
                raise self._ended(ended)

    def _ended(self, code: int | None) -> SlackwaterError:
        how = "does not answer" if code is None else f"ended with code {code}"
        tail = self.log.read_text(errors="replace")[-2_000:]
        return SlackwaterError(f"the Kafka broker at {self.servers} {how}:\n{tail}")

    def _end(self, order: str) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        try:
            keeper.communicate(f"{order}\n", timeout=_END_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.communicate()


def usual_port() -> int | None:
    """Return the port that examples and Kafka's own tools name; None where somebody has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return None
    return USUAL_PORT


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
