"""Flower's own SecAgg+, driven in this process with its own messages, as the peer to measure against."""

import copy
import logging
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import flwr.compat.common.recorddict_compat as compat
import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.client_manager import SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.task_identity import TaskIdentity

logging.getLogger("flwr").setLevel(logging.CRITICAL)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1


class _Everyone(FedAvg):
    """Asks every node, and keeps the aggregate without averaging anything again."""

    def __init__(self, nodes: list[GridClientProxy]) -> None:
        super().__init__()
        self._nodes = nodes

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:  # noqa: ANN401, ARG002 - Flower's signature
        return [(node, FitIns(parameters, {})) for node in self._nodes]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:  # noqa: ANN401, ARG002 - Flower's signature
        return results[0][1].parameters, {}


class _InProcess:
    """Delivers the workflow's messages to the mod, and keeps the time that each node spends in it."""

    def __init__(self, updates: dict[int, np.ndarray[Any, Any]], dropped: set[int]) -> None:
        self._updates, self._dropped = updates, dropped
        self._contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            for node in updates
        }
        self.client_seconds: dict[int, float] = defaultdict(float)
        self.upload_bytes = 0
        self.copying = self.training = 0.0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        del timeout
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            uploading = "fitins.parameters" in message.content.array_records
            if uploading and node in self._dropped:
                continue
            trained = 0.0

            def train(received: Message, context: Context, node: int = node) -> Message:
                nonlocal trained
                del context
                start = time.perf_counter()
                result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([self._updates[node]]), 1, {})
                reply = Message(compat.fitres_to_recorddict(result, keep_input=False), reply_to=received)
                trained = time.perf_counter() - start
                self.training += trained
                return reply

            # On the wire every node gets a copy of its own; making it is nobody's work here.
            start = time.perf_counter()
            own = copy.deepcopy(message)
            self.copying += time.perf_counter() - start
            start = time.perf_counter()
            reply = secaggplus_mod(own, self._contexts[node], train)
            self.client_seconds[node] += time.perf_counter() - start - trained
            if uploading:
                self.upload_bytes = max(self.upload_bytes, _size(reply.content.config_records))
            replies.append(reply)
        return replies


def _size(records: Any) -> int:  # noqa: ANN401 - Flower's own record type
    return sum(
        len(item)
        for record in records.values()
        for value in record.values()
        if isinstance(value, list)
        for item in value
        if isinstance(item, bytes)
    )


def run_round(vectors: list[np.ndarray[Any, Any]], drops: int) -> dict[str, float]:
    """Run one round of Flower's SecAgg+; return seconds per client and for the server, and bytes uploaded."""
    random.seed(0)
    updates = {node + 1: vector for node, vector in enumerate(vectors)}
    grid = _InProcess(updates, dropped=set(list(updates)[:drops]))
    nodes = [GridClientProxy(node, grid, run_id=1) for node in updates]
    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        strategy=_Everyone(nodes),
        client_manager=SimpleClientManager(),
    )
    zero = ndarrays_to_parameters([np.zeros_like(vectors[0])])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(zero, keep_input=True)
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    workflow = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.5, max_weight=1, clipping_range=1.0)
    start = time.perf_counter()
    workflow(grid, context)
    total = time.perf_counter() - start
    found = parameters_to_ndarrays(
        compat.arrayrecord_to_parameters(context.state.array_records[MAIN_PARAMS_RECORD], keep_input=True)
    )[0]
    mean = np.mean([updates[node] for node in updates if node > drops], axis=0)
    if not np.allclose(found, mean, atol=1e-3):
        raise AssertionError("Flower's aggregate is not the mean of the updates; the driver is wrong")
    clients = [seconds for node, seconds in grid.client_seconds.items() if node > drops]
    return {
        "client_s": float(np.median(clients)),
        "server_s": total - sum(grid.client_seconds.values()) - grid.copying - grid.training,
        "upload_bytes": grid.upload_bytes,
    }
