"""An app of Flower's as anybody would write it, with and without the mod; what it trains can be foretold."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coterie.flower import SealedStrategy, SealingMod, TrustServerForIdentities

USERS = 8
SHAPE = (6, 5)
START = {"weights": np.linspace(-1, 1, 30, dtype=np.float32).reshape(SHAPE), "steps": np.array(3)}
BOUNDS = {"loss": (0.0, 4.0)}


def model():
    """The model that training begins with."""
    return ArrayRecord({name: Array(array) for name, array in START.items()})


def target(partition):
    """Where a node pulls the model."""
    return np.random.default_rng(partition).uniform(-0.8, 0.8, SHAPE).astype(np.float32)


def examples(partition):
    """How many examples a node has."""
    return 10 + 7 * partition


def loss(weights, partition):
    """How far a model is from where a node pulls it."""
    return float(np.abs(weights - target(partition)).mean())


def trained(weights, partition, rate=0.5):
    """The model that a node returns."""
    return (weights + np.float32(rate) * (target(partition) - weights)).astype(np.float32)


def averaged(weights, partitions):
    """Plain FedAvg over some nodes."""
    counts = np.array([examples(partition) for partition in partitions], dtype=np.float64)
    models = np.array([trained(weights, partition) for partition in partitions], dtype=np.float64)
    return np.tensordot(counts / counts.sum(), models, axes=1)


def app(*mods):
    """The app, with these mods."""
    client = ClientApp(mods=list(mods))

    @client.train()
    def train(msg, context):
        partition = int(context.node_config["partition-id"])
        _wait_while_it_is_there(Path(str(context.node_config.get("stall", "no such file"))))
        before = msg.content["arrays"]["weights"].numpy()
        weights = trained(before, partition, msg.content["config"]["lr"])
        arrays = ArrayRecord({"weights": Array(weights), "steps": Array(np.asarray(9))})
        metrics = MetricRecord({"loss": loss(before, partition), "num-examples": examples(partition)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)

    @client.evaluate()
    def evaluate(msg, context):
        partition = int(context.node_config["partition-id"])
        weights = msg.content["arrays"]["weights"].numpy()
        metrics = MetricRecord({"loss": loss(weights, partition), "num-examples": examples(partition)})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    @client.query()
    def query(msg, context):
        partition = int(context.node_config["partition-id"])
        return Message(RecordDict({"metrics": MetricRecord({"examples": examples(partition)})}), reply_to=msg)

    return client


def _wait_while_it_is_there(stall):
    """Stay in the middle of training for as long as a test wants."""
    if stall.exists():
        stall.with_suffix(".entered").touch()
    while stall.exists():
        time.sleep(0.1)


def mod(folder, **changes):
    """The mod of the devices in a folder."""
    options = {"least_privacy": 2, "protocols": {"open", "secagg+"}, "verify_member": TrustServerForIdentities()}
    return SealingMod("test", simulated_devices=folder / "devices", **{**options, **changes})


def sealed(folder, strategy, **changes):
    """A sealed strategy with its ledger in a folder."""
    options = {
        "ledger": folder / "ledger.sqlite", "privacy": 2, "scope": "test", "protocol": "open", "users": USERS,
        "wait": 30.0,
    }  # fmt: skip
    return SealedStrategy(strategy, **{**options, **changes})


def start(strategy, nodes, rounds=1, **changes):
    """Run a strategy among nodes."""
    options = {"num_rounds": rounds, "timeout": 60.0, "train_config": ConfigRecord({"lr": 0.5})}
    with nodes.running() as grid:
        return strategy.start(grid, model(), **{**options, **changes})
