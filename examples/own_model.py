"""Your own data and your own model, trained privately: twelve clinics, each with a table of its own."""

import tempfile
from pathlib import Path

import numpy as np
from torch import nn

import coterie


def build(classes, shape):
    """Return the model. A run finds this function as `own_model:build`, also when it is resumed."""
    return nn.Sequential(nn.Linear(shape[0], 16), nn.Tanh(), nn.Linear(16, classes))


def write_clinics(folder):
    """Write a file for each clinic and one to test with, as your own export would."""
    rng = np.random.default_rng(0)
    for name in (*(f"clinic-{number:02d}" for number in range(12)), "test"):
        features = rng.normal(size=(rng.integers(80, 200), 5)).astype(np.float32)
        risk = features[:, 0] * features[:, 1] + features[:, 2] - 0.5 * features[:, 3]
        np.savez(folder / f"{name}.npz", features=features, labels=(risk > 0).astype(np.int64))


def main():
    """Train over batches of three clinics, six clinics a round, and ask what that gave away."""
    folder = Path(tempfile.mkdtemp(prefix="clinics-"))
    write_clinics(folder)
    result = coterie.run(
        data=folder,
        model="own_model:build",
        privacy=3,
        per_round=6,
        rounds=25,
        epochs=3,
        aggregation="open",
        out=folder / "run",
    )
    for round_ in (1, 5, 25):
        print(f"accuracy after round {round_:2}: {result.columns['accuracy'][round_ - 1]:.2f}")
    print(coterie.audit(result.path, require=3).words.headline)
    print(f"Open {result.path / 'report.html'} in a browser.")


if __name__ == "__main__":
    main()
