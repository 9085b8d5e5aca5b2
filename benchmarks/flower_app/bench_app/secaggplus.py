"""Flower's own SecAgg+, which its legacy workflow has."""

from typing import Any

from flwr.app import Context
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

from bench_app.meter import Meter, start, train


class Client(NumPyClient):
    """A node of the legacy interface."""

    def __init__(self, partition: int) -> None:
        self.partition = partition

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        """Return the trained model."""
        del config
        return train(parameters, self.partition), 1, {}


client = ClientApp(
    client_fn=lambda context: Client(context.node_config["partition-id"]).to_client(), mods=[secaggplus_mod]
)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Average by SecAgg+, with all nodes as neighbours and half of them needed."""
    config, meter = context.run_config, Meter(grid, context)
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=config["nodes"],
        min_available_clients=config["nodes"],
        initial_parameters=ndarrays_to_parameters(start(context)),
        evaluate_fn=meter.mark,
    )
    legacy = LegacyContext(context, config=ServerConfig(num_rounds=config["rounds"]), strategy=strategy)
    workflow = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.5, max_weight=1, clipping_range=1.0)
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
