"""Who is in the sum together: the batches of a pairwise round, at the server (§5, §8)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coterie.errors import TooFewUsers, UsageError
from coterie.secagg.wire.messages import LARGEST_ROSTER
from coterie.secagg.wire.terms import Terms


@dataclass(frozen=True, eq=False)
class Group:
    """Users who are in the sum together or not at all: a batch, or in an unsealed round one user."""

    name: bytes
    """The charter's digest; empty for a user alone."""
    privacy: int
    identities: Mapping[str, bytes]
    call: bytes
    """What its users are first sent."""

    @property
    def wanted(self) -> int:
        """The least number of users in a sum with this group: it and T others."""
        return len(self.identities) + self.privacy


class Grouping:
    """All groups of a round, and what devices demand of a sum."""

    def __init__(self, groups: Iterable[Group], terms: Terms) -> None:
        self.groups = tuple(groups)
        self.of = {user: group for group in self.groups for user in group.identities}
        self._least = terms.min_included
        users, most = sum(len(group.identities) for group in self.groups), min(terms.cohort, LARGEST_ROSTER)
        if len(self.of) != users:
            raise UsageError("a user is in two of the batches of this round")
        if users > most:
            raise UsageError(f"{users} users are asked, more than the {most} that the terms allow")
        least = max((group.wanted for group in self.groups), default=2)
        if not least <= terms.min_included <= users:
            raise UsageError(
                f"min_included is {terms.min_included}; give {least} (the largest batch and T more) to {users} "
                "(everyone asked)"
            )

    def complete(self, users: Iterable[str]) -> list[Group]:
        """Return the groups that are there as a whole."""
        there = frozenset(users)
        return [group for group in self.groups if there.issuperset(group.identities)]

    def demand(self, users: Iterable[str], done: str) -> None:
        """End a round in which too few users are left in complete groups for any device to agree."""
        groups = self.complete(users)
        found = sum(len(group.identities) for group in groups)
        if found < self._least:
            raise TooFewUsers(
                f"{found} users in {len(groups)} of {len(self.groups)} batches {done}; {self._least} are needed"
            )

    def lost(self, absent: frozenset[str]) -> dict[bytes, str]:
        """Return the batches that absent users are missing from, and the reason."""
        counts = {group: len(absent.intersection(group.identities)) for group in self.groups if group.name}
        return {
            group.name: f"{count} of {len(group.identities)} users did not answer"
            for group, count in counts.items()
            if count
        }
