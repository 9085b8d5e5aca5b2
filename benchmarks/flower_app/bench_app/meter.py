"""The job that all ways share, and what it costs as the SuperLink and the Grid count it."""

import json
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid


def start(context: Context) -> list[Any]:
    """Return the first model: zeros."""
    return [np.zeros(context.run_config["dimension"], np.float32)]


def train(arrays: list[Any], partition: int) -> list[Any]:
    """Return a model as training would: near the one that came, and a node's own."""
    rng = np.random.default_rng(partition)
    return [each + rng.normal(0, 0.01, each.shape).astype(np.float32) for each in arrays]


class Meter:
    """Writes down, after each round, the time, the messages and the bytes so far."""

    def __init__(self, grid: Grid, context: Context) -> None:
        self.config, self.run = context.run_config, context.run_id
        self.sent = self.received = 0
        push, pull = grid.push_messages, grid.pull_messages

        def push_messages(messages: Iterable[Message]) -> Iterable[str]:
            every = list(messages)
            self.sent += len(every)
            return push(every)

        def pull_messages(message_ids: Iterable[str]) -> Iterable[Message]:
            every = list(pull(message_ids))
            self.received += len(every)
            return every

        grid.push_messages = push_messages  # type: ignore[method-assign]
        grid.pull_messages = pull_messages  # type: ignore[method-assign]

    def mark(self, server_round: int, *_: object) -> None:
        """Write a line for a round that has ended; round 0 is before the first."""
        line = {
            "round": server_round,
            "time": time.time(),
            "messages": self.sent + self.received,
            "bytes": self._traffic(),
        }
        with Path(self.config["marks"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _traffic(self) -> int:
        """Return the bytes between the SuperLink and the nodes, of which a simulation has none."""
        if not self.config["database"]:
            return 0
        signed = self.run - 2**64 if self.run >= 2**63 else self.run
        with closing(sqlite3.connect(self.config["database"])) as database:
            row = database.execute(
                "SELECT bytes_sent + bytes_recv FROM run WHERE run_id = ?", (signed,)
            ).fetchone()
        return int(row[0])
