"""The paper's CNN on MNIST, IID: random selection beside Multi-RoundSecAgg with T = 3.

    python experiments/mnist_iid.py DATA_FOLDER [--seeds 5] [--rounds 200] [--device cuda] [--out FILE]

120 users with 500 images each, 12 per round, each user's dropout drawn from 0.1 to 0.5, batches of consecutive
users, 200 rounds, one local epoch of minibatches of 100 in fixed order, learning rate 0.03, weight decay 5e-4.
Writes JSON lines: the setting, then a line per scheme and seed with the test accuracy over the rounds. What the
paper reports for this table is in `PUBLISHED`, for the comparison that is printed.
"""

import argparse
import dataclasses
import json
import platform
import time
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

import coterie
from coterie.selection import (
    BatchSelector,
    IndependentDropout,
    RandomSelector,
    Selector,
    consecutive,
    draw_dropout,
)
from coterie.training import MNIST, Dataset, UserData, iid, load
from coterie.training.engine.stacked import make_trainer
from coterie.training.engine.vector import flatten
from coterie.training.evaluate import evaluate
from coterie.training.models import make_model
from coterie.training.settings import LocalTraining

USERS, PER_ROUND = 120, 12
DROPOUT = (0.1, 0.2, 0.3, 0.4, 0.5)
LOCAL = LocalTraining(epochs=1, minibatch=100, learning_rate=0.03, weight_decay=5e-4, shuffled=False)
SCHEMES: dict[str, Selector] = {
    "random": RandomSelector(PER_ROUND),
    "T3": BatchSelector(consecutive(USERS, privacy=3), PER_ROUND),
}
PUBLISHED = {"random": 98.21, "T3": 98.15}
EVERY = 10
"""Rounds between two tests of the model."""


def run(dataset: Dataset, scheme: str, seed: int, rounds: int, device: str) -> dict[str, object]:
    """Train a model by federated averaging; skipped rounds count."""
    rng = np.random.default_rng((seed, 0))
    user_data = UserData.of_dataset(dataset, iid(len(dataset.train), USERS, rng)).to(device)
    online = IndependentDropout(draw_dropout(DROPOUT, USERS, rng)).rounds(np.random.default_rng((seed, 1)))
    choosing = np.random.default_rng((seed, 2))
    model = make_model("mnist-cnn", dataset.classes, seed).to(device)
    trainer = make_trainer(model, user_data, LOCAL, cohort=PER_ROUND, seed=seed)
    parameters, counts, skipped = flatten(model), np.zeros(USERS, dtype=np.int64), 0
    curve: dict[int, float] = {}
    start = time.perf_counter()
    for round_ in range(rounds):
        cohort = SCHEMES[scheme].choose(next(online), counts, choosing)
        if cohort is None:
            skipped += 1
        else:
            counts[cohort.users] += 1
            parameters = parameters + trainer.mean(parameters, cohort.users, round_).vector
        if (round_ + 1) % EVERY == 0 or round_ + 1 == rounds:
            curve[round_ + 1] = evaluate(model, parameters, user_data).accuracy
    return {
        "scheme": scheme,
        "seed": seed,
        "accuracy": curve[rounds],
        "skipped": skipped,
        "fairness_gap": float(np.ptp(counts)) / rounds,
        "seconds": time.perf_counter() - start,
        "curve": curve,
    }


def setting(rounds: int, device: str) -> dict[str, object]:
    """Return what the record needs to be made again."""
    return {
        "experiment": "mnist-iid",
        "users": USERS,
        "per_round": PER_ROUND,
        "rounds": rounds,
        "dropout": DROPOUT,
        "model": "mnist-cnn",
        "local": dataclasses.asdict(LOCAL),
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
        "versions": {"coterie": coterie.__version__, "torch": torch.__version__, "numpy": np.__version__},
    }


def main() -> None:
    """Run every scheme with every seed, and write each result as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "mnist_iid.jsonl")
    asked = parser.parse_args()
    dataset = load(MNIST, asked.folder)
    asked.out.parent.mkdir(exist_ok=True, parents=True)
    with asked.out.open("w", encoding="utf-8") as out:
        out.write(json.dumps(setting(asked.rounds, asked.device)) + "\n")
        for scheme in SCHEMES:
            results = []
            for seed in range(asked.seeds):
                results.append(run(dataset, scheme, seed, asked.rounds, asked.device))
                out.write(json.dumps(results[-1]) + "\n")
                out.flush()
            mean = 100 * fmean(result["accuracy"] for result in results)
            taken = fmean(result["seconds"] for result in results)
            print(f"{scheme}: {mean:.2f} % (paper: {PUBLISHED[scheme]:.2f} %), {taken:.1f} s a run")


if __name__ == "__main__":
    main()
