"""Plain FedAvg: the server sees every update."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bench_app.meter import Meter, start, train

client = ClientApp()
server = ServerApp()


@client.train()
def train_model(msg: Message, context: Context) -> Message:
    """Return the trained model."""
    model = train(msg.content["arrays"].to_numpy_ndarrays(), context.node_config["partition-id"])
    records = {"arrays": ArrayRecord(model), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(records), reply_to=msg)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Average."""
    nodes = context.run_config["nodes"]
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(start(context)),
        num_rounds=context.run_config["rounds"],
        evaluate_fn=Meter(grid, context).mark,
    )
