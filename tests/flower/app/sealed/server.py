"""The server: Flower's FedAvg, sealed, over the ledger in a folder."""

import json
from pathlib import Path

from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from support.flower.app import model, sealed

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Go on to a round, and write down the model."""
    config = context.run_config
    folder = Path(str(config["folder"]))
    strategy = sealed(folder, FedAvg(), users=int(config["users"]), wait=600.0)
    rounds, timeout = int(config["rounds"]), float(config["timeout"])
    settings = ConfigRecord({"lr": 0.5})
    result = strategy.start(grid, model(), num_rounds=rounds, timeout=timeout, train_config=settings)
    arrays = {name: array.numpy().tolist() for name, array in result.arrays.items()}
    (folder / "result.json").write_text(json.dumps(arrays))
