"""Sealed by Coterie."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bench_app.meter import Meter, start, train
from bench_app.scope import SCOPE
from coterie.flower import SealedStrategy, SealingMod, TrustServerForIdentities

mod = SealingMod(
    SCOPE,
    least_privacy=2,
    protocols={"secagg+", "open"},
    verify_member=TrustServerForIdentities(),
    simulated_devices="~/devices",
)
client = ClientApp(mods=[mod])
server = ServerApp()


@client.train()
def train_model(msg: Message, context: Context) -> Message:
    """Return the trained model."""
    model = train(msg.content["arrays"].to_numpy_ndarrays(), context.node_config["partition-id"])
    records = {"arrays": ArrayRecord(model), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(records), reply_to=msg)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Average whole batches."""
    config = context.run_config
    strategy = SealedStrategy(
        FedAvg(),
        privacy=config["privacy"],
        ledger=config["ledger"],
        scope=SCOPE,
        protocol=config["protocol"],
        users=config["nodes"],
        per_round=config["per-round"],
        weight_cap=1,
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(start(context)),
        num_rounds=config["rounds"],
        evaluate_fn=Meter(grid, context).mark,
    )
