"""Softmax regression on the digits that Coterie ships, in NumPy alone."""

import gzip
from importlib.resources import files
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

DATA = files("coterie") / "lab" / "training" / "shipped" / "mnist-small"
Floats: TypeAlias = NDArray[np.float32]


def load(part: str, share: int = 0, shares: int = 1) -> tuple[Floats, NDArray[np.uint8]]:
    """Return every so-many-th example of "train" or "t10k", beginning with that of number `share`."""
    images = gzip.decompress((DATA / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((DATA / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784)
    return pixels[share::shares].astype(np.float32) / 255, np.frombuffer(labels, np.uint8, offset=8)[share::shares]


def start() -> list[Floats]:
    """Return weights and biases of nothing learned."""
    return [np.zeros((784, 10), np.float32), np.zeros(10, np.float32)]


def predict(model: list[Floats], images: Floats) -> Floats:
    """Return the probability of each class."""
    scores = np.exp((logits := images @ model[0] + model[1]) - logits.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def train(model: list[Floats], images: Floats, labels: NDArray[np.uint8]) -> list[Floats]:
    """Return the model after thirty steps of gradient descent."""
    weights, biases = (each.copy() for each in model)
    target = np.eye(10, dtype=np.float32)[labels]
    for _ in range(30):
        error = (predict([weights, biases], images) - target) / len(labels)
        weights -= images.T @ error
        biases -= error.sum(axis=0)
    return [weights, biases]


def accuracy(model: list[Floats], images: Floats, labels: NDArray[np.uint8]) -> float:
    """Return the share of images that are read right."""
    return float(np.mean(predict(model, images).argmax(axis=1) == labels))
