"""Options that several commands read in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def dropout_choices(text: str) -> list[float]:
    """Return the probabilities of --dropout: one, or several with commas."""
    from coterie.theory import check_probabilities

    try:
        choices = [float(value) for value in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--dropout is {text!r}: give a probability (0.3) or several with commas (0.1,0.2,0.3)"
        ) from None
    check_probabilities(choices, "--dropout")
    return choices


def check_one_source(users: int | None, dropout: str | None, availability: Path | None) -> None:
    """Refuse options that describe the users' availability not at all, or twice."""
    if (dropout is None) == (availability is None):
        raise UsageError(
            "say how often users are away, in one way: --dropout 0.3, --dropout 0.1,0.2,0.3 or "
            "--availability log.csv"
        )
    if users is not None and users < 1:
        raise UsageError(f"--users is {users}: a federation needs at least one user")
    if users is None and availability is None:
        raise UsageError("say how many users there are: --users 120")
