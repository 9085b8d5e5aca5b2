"""Means over trials, and the record of a simulation."""

import math
from typing import Any

import numpy as np

from coterie.simulation.setting import Simulation
from coterie.simulation.trial import MEASURES, Trial
from coterie.values import FloatArray


class Summary:
    """Means over trials, round by round, as the trials come in.

    Trials are added in order, so sums round the same way whatever computed them.
    """

    def __init__(self, rounds: int) -> None:
        self.trials = 0
        self._sums = np.zeros((len(MEASURES), rounds))
        self._squares = np.zeros((len(MEASURES), rounds))
        self._lowest_strong = np.full(rounds, np.inf)

    def add(self, trial: Trial) -> None:
        """Take in one more trial."""
        table = np.array([getattr(trial, name) for name in MEASURES])
        self.trials += 1
        self._sums += table
        self._squares += table**2
        self._lowest_strong = np.minimum(self._lowest_strong, trial.strong)

    def mean(self, measure: str) -> FloatArray:
        """Return a measure's mean over trials, after every round."""
        return np.asarray(self._sums[MEASURES.index(measure)] / self.trials)

    @property
    def lowest_strong(self) -> FloatArray:
        """The strong level of the worst trial, after every round."""
        return self._lowest_strong

    def interval(self, measure: str) -> tuple[FloatArray, FloatArray]:
        """Return the 95 % confidence interval of a measure's mean (Student's t), after every round."""
        from scipy.special import stdtrit

        mean = self.mean(measure)
        if self.trials == 1:
            return mean, mean
        index = MEASURES.index(measure)
        spread = np.maximum(self._squares[index] / self.trials - mean**2, 0.0) / (self.trials - 1)
        margin = float(stdtrit(self.trials - 1, 0.975)) * np.sqrt(spread)
        return mean - margin, mean + margin


def record(simulation: Simulation, summaries: list[Summary]) -> dict[str, Any]:
    """Return the result as plain data: for each scheme its values after the last round, and its curves."""
    return {
        "users": simulation.users,
        "per_round": simulation.per_round,
        "rounds": simulation.rounds,
        "trials": summaries[0].trials,
        "seed": simulation.seed,
        "lost": simulation.lost,
        "leaving": simulation.leaving,
        "joining": simulation.joining,
        "schemes": [
            {"scheme": scheme.name, **_final(summary), "curves": _curves(summary)}
            for scheme, summary in zip(simulation.schemes, summaries, strict=True)
        ],
    }


def _final(summary: Summary) -> dict[str, Any]:
    means = {name: _number(summary.mean(name)[-1]) for name in MEASURES if name != "strong"}
    intervals = {f"{name}_interval": _ends(summary, name) for name in ("fairness_gap", "cardinality")}
    strong = {"low": int(summary.lowest_strong[-1]), "mean": float(summary.mean("strong")[-1])}
    return {"strong": {**strong, "interval": _ends(summary, "strong")}, **means, **intervals}


def _ends(summary: Summary, measure: str) -> list[float]:
    """Return the 95 % interval of a measure after the last round."""
    return [float(bound[-1]) for bound in summary.interval(measure)]


def _curves(summary: Summary) -> dict[str, list[float | None]]:
    low, high = summary.interval("cardinality")
    curves = {name: summary.mean(name) for name in MEASURES}
    curves |= {"strong_low": summary.lowest_strong, "cardinality_low": low, "cardinality_high": high}
    return {name: [_number(value) for value in curve] for name, curve in curves.items()}


def _number(value: float) -> float | None:
    """JSON has no NaN: what was not measured is null."""
    return None if math.isnan(value) else round(float(value), 9)
