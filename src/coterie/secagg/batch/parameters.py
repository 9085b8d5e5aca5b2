"""How many users may collude and how many may be lost: what thresholds follow from (§5)."""

from dataclasses import dataclass

from coterie.errors import UsageError
from coterie.values.checks import check_count

WHOLE = 1000
"""γ and δ are written in thousandths, so that every device rounds them alike."""


@dataclass(frozen=True)
class Parameters:
    """γ and δ of a charter: the shares of a round's users that may collude, and that may be lost, in thousandths.

    A server that collects signatures under two different lists needs t users under each, so t is over half of all
    users and half of the colluders: t = ⌊(n + ⌊γn⌋)/2⌋ + 1. A sum needs t users to the end, so γ + 2δ < 1.

    >>> [Parameters().threshold(users) for users in (12, 100, 1000)]
    [8, 61, 601]
    >>> Parameters(colluders=500, losses=300)
    Traceback (most recent call last):
    coterie.errors.UsageError: γ = 0.5 of the users may collude and δ = 0.3 may be lost; γ + 2δ must stay below 1: lower one of them
    """  # noqa: E501 - the message is one line

    colluders: int = 200
    """γ, in thousandths."""
    losses: int = 300
    """δ, in thousandths."""

    def __post_init__(self) -> None:
        for name in ("colluders", "losses"):
            check_count(getattr(self, name), f"the share of {name} in thousandths", least=0)
        if self.colluders + 2 * self.losses >= WHOLE:
            raise UsageError(
                f"γ = {self.colluders / WHOLE:g} of the users may collude and δ = {self.losses / WHOLE:g} may be "
                "lost; γ + 2δ must stay below 1: lower one of them"
            )

    def colluding(self, users: int) -> int:
        """Return ⌊γn⌋, how many of n users may collude."""
        return users * self.colluders // WHOLE

    def lost(self, users: int) -> int:
        """Return ⌊δn⌋, how many of n users may be lost."""
        return users * self.losses // WHOLE

    def threshold(self, users: int) -> int:
        """Return t, how many of n users must sign an agreement: two such groups share an honest user."""
        return (users + self.colluding(users)) // 2 + 1


DEFAULT_PARAMETERS = Parameters()
"""A fifth of the users may collude, three tenths may be lost."""
