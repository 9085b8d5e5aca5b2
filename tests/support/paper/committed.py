"""What is known of the committed records of the paper's experiments."""

from pathlib import Path

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
INCOMPLETE = {"cifar100-authors"}
"""Experiments of which some runs wait for a GPU; their page says how many are recorded."""
