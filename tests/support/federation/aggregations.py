"""Small honest aggregations, and what every ledger must be after whatever happened to it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.federation.coordinator import RoundOutcome
from coterie.federation.ledger import Ledger, State
from coterie.federation.ledger.ledger import verify


@dataclass
class Scripted:
    """An aggregation that does what its script says when the cohort is asked."""

    act: Callable
    name: str = "sum"
    sealed: bool = False
    terms_digest: bytes = b""
    able: np.ndarray | None = None

    def ready(self, plan):
        del plan
        return self.able

    def gather(self, round_, cohort, ended):
        del ended
        return self.act(round_, cohort)


def outcome_of(round_, cohort, learned, mean, *, lost=None, reason=""):
    """The outcome of a round that learned some sets: all of them are included, if there is a mean."""
    return RoundOutcome(
        round=round_,
        state=State.ABANDONED if mean is None else State.COMMITTED,
        cohort=cohort,
        learned=tuple(learned),
        included=np.zeros(0, dtype=np.int64) if mean is None else np.unique(np.concatenate(learned)),
        mean=mean,
        lost=lost or {},
        reason=reason or ("nobody's update came through" if mean is None else ""),
    )


def everybody(round_, cohort):
    """One sum over the whole cohort; a user's update is its number."""
    return outcome_of(round_, cohort, [cohort.users], np.array([cohort.users.mean()]))


def raising(error):
    """A script that ends with an exception."""

    def act(*_):
        raise error

    return act


def check_sound(location):
    """A ledger is whole, its rounds are numbered without a gap, and its counts are right; return the rounds."""
    assert verify(location).findings == ()
    with Ledger.open(location, read_only=True) as ledger:
        rounds = list(ledger.rounds())
        assert [each.number for each in rounds] == list(range(ledger.next_round))
        counts = np.zeros(ledger.users, dtype=np.int64)
        for each in rounds:
            if each.state is State.COMMITTED:
                for user in set().union(
                    *(users.tolist() for users in each.learned[: len(each.learned) - each.late])
                ):
                    counts[user] += 1
        assert ledger.counts.tolist() == counts.tolist()
        ended = (State.COMMITTED, State.ABANDONED, State.SKIPPED)
        assert ledger.steps == sum(each.state in ended for each in rounds)
        return rounds
