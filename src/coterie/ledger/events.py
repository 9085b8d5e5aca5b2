"""What can happen to a federation: one frozen type per kind of record."""

from dataclasses import dataclass
from typing import TypeAlias

from coterie.ledger.bodies import (
    Charters,
    Digest,
    Flag,
    Keys,
    Labels,
    Metrics,
    Names,
    Number,
    Rising,
    RisingLists,
    Text,
    decode,
)
from coterie.ledger.interface import Damaged, Record

VERSION = 1
"""Of the records' form; `Created` says it."""


@dataclass(frozen=True)
class Created:
    """The ledger begins; `ledger` is a name that no other ledger has."""

    version: Number
    ledger: Text


@dataclass(frozen=True)
class Enrolled:
    """Users join; their numbers follow those of the users before. `keys` are their identity keys, if known."""

    names: Names
    keys: Keys


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan comes into force."""

    users: Number
    privacy: Number
    batches: RisingLists


@dataclass(frozen=True)
class Chartered:
    """Batches of the plan in force have their charters, which are only bytes here."""

    plan: Number
    charters: Charters


@dataclass(frozen=True, eq=False)
class Opened:
    """A round begins; `asked` are batches of the plan in force, or users where `plan` is 0."""

    round: Number
    plan: Number
    sealed: Flag
    protocol: Text
    terms: Digest
    coordinator: Text
    asked: Rising


@dataclass(frozen=True, eq=False)
class Committed:
    """A round ends well.

    `learned` are places among what was asked, if `whole`, else among the cohort's users, sorted: a cohort that
    answered in full takes next to no bytes. `lost` are places among what was asked, a list per reason.
    """

    round: Number
    whole: Flag
    learned: RisingLists
    reasons: Labels
    lost: RisingLists
    metrics: Metrics


@dataclass(frozen=True, eq=False)
class Abandoned:
    """A round is given up; what was learned before that is learned all the same."""

    round: Number
    reason: Text
    whole: Flag
    learned: RisingLists


@dataclass(frozen=True)
class Unfinished:
    """A later coordinator found the round open and its own coordinator gone: nobody knows what was learned."""

    round: Number
    coordinator: Text


@dataclass(frozen=True)
class Skipped:
    """A round has no cohort."""

    round: Number
    reason: Text


@dataclass(frozen=True)
class Noted:
    """Numbers about a round that came to be known after it."""

    round: Number
    metrics: Metrics


@dataclass(frozen=True)
class Checkpointed:
    """A file that was kept after a round."""

    round: Number
    name: Text
    sha256: Digest


Event: TypeAlias = (
    Created
    | Enrolled
    | Planned
    | Chartered
    | Opened
    | Committed
    | Abandoned
    | Unfinished
    | Skipped
    | Noted
    | Checkpointed
)

_KINDS: dict[str, type[Event]] = {
    kind.__name__.lower(): kind
    for kind in (
        Created,
        Enrolled,
        Planned,
        Chartered,
        Opened,
        Committed,
        Abandoned,
        Unfinished,
        Skipped,
        Noted,
        Checkpointed,
    )
}


def kind_of(event: Event) -> str:
    """Return the word for an event.

    >>> kind_of(Skipped(round=3, reason="nobody is there"))
    'skipped'
    """
    return type(event).__name__.lower()


def event_of(record: Record) -> Event:
    """Return what a record says."""
    kind = _KINDS.get(record.kind)
    if kind is None:
        raise Damaged(f"there is no kind of record {record.kind!r:.40}")
    return decode(kind, record.body)
