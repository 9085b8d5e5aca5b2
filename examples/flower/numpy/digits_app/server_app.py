"""What the server does: it averages what the nodes learned, and tests it."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from coterie.flower import SealedStrategy
from digits_app.task import accuracy, load, start

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds that the configuration asks for."""
    strategy = SealedStrategy(
        FedAvg(), privacy=4, ledger="~/coterie-digits/ledger.sqlite", protocol="open", weight_cap=1
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(start()),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=evaluate,
    )


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the global model on data of the server's own."""
    del server_round
    return MetricRecord({"accuracy": accuracy(arrays.to_numpy_ndarrays(), *load("t10k"))})
