"""Who is in the sum together: the batches of a pairwise round, at the server (§5, §8)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from coterie.errors import TooFewUsers, UsageError
from coterie.secagg.protocols.interface import Group, RoundSetting
from coterie.secagg.protocols.pairwise.messages import LARGEST_ROSTER


def least_included(group: Group) -> int:
    """Return the least number of users in a sum with this group: it and T others."""
    return len(group.identities) + group.privacy


class Grouping:
    """All groups of a round, and what devices demand of a sum."""

    def __init__(self, groups: Iterable[Group], setting: RoundSetting) -> None:
        self._set(groups)
        self.number = {user: number for number, group in enumerate(self.groups) for user in group.identities}
        """Every user's group, as a number."""
        self._least = setting.terms.min_included
        users, most = (
            sum(len(group.identities) for group in self.groups),
            min(setting.quantiser.cohort, LARGEST_ROSTER),
        )
        if len(self.of) != users:
            raise UsageError("a user is in two of the batches of this round")
        if users > most:
            raise UsageError(f"{users} users are asked, more than the {most} that the quantiser allows")
        least = max((least_included(group) for group in self.groups), default=2)
        if not least <= setting.terms.min_included <= users:
            raise UsageError(
                f"min_included is {setting.terms.min_included}; give {least} (the largest batch and T more) to "
                f"{users} (everyone asked)"
            )

    def _set(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(groups)
        self.of = {user: group for group in self.groups for user in group.identities}

    def drop_calls(self) -> None:
        """Let go of what users were first sent, the model in it."""
        self._set(replace(group, call=b"") for group in self.groups)

    @property
    def sealed(self) -> bool:
        """Whether the groups are batches, whose vectors are sealed."""
        return all(group.name for group in self.groups)

    def complete(self, users: Iterable[str]) -> list[Group]:
        """Return the groups that are there as a whole."""
        there = frozenset(users)
        return [group for group in self.groups if there.issuperset(group.identities)]

    def demand(self, users: Iterable[str], done: str) -> None:
        """End a round in which too few users are left in complete groups for any device to agree."""
        groups = self.complete(users)
        included = sum(len(group.identities) for group in groups)
        if included < self._least:
            raise TooFewUsers(
                f"{included} users in {len(groups)} of {len(self.groups)} batches {done}; {self._least} are needed"
            )

    def lost(self, absent: frozenset[str], liars: Mapping[str, str]) -> dict[bytes, str]:
        """Return the batches that absent users are missing from, and the reason: they lied, or did not answer."""
        reasons = {}
        for group in self.groups:
            missing = absent.intersection(group.identities)
            if group.name and missing:
                lies = [f"{user} {liars[user]}" for user in sorted(missing & liars.keys())]
                silent = f"{len(missing)} of {len(group.identities)} users did not answer"
                reasons[group.name] = "; ".join(lies) or silent
        return reasons
