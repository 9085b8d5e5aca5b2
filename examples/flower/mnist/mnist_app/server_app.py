"""What the server does: it averages what the nodes learned."""

from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from coterie.flower import SealedStrategy
from mnist_app.task import load, make_net, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds that the configuration asks for."""
    config = context.run_config
    strategy = SealedStrategy(
        FedAvg(),
        privacy=4,
        ledger="~/coterie-mnist/ledger.sqlite",
        train_metrics={"train-loss": (0.0, 10.0)},
        evaluate_metrics={"loss": (0.0, 10.0), "accuracy": (0.0, 1.0)},
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(make_net().state_dict()),
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"learning-rate": config["learning-rate"]}),
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the global model on data of the server's own."""
    del server_round
    net = make_net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord(test(net, *load("t10k")))
