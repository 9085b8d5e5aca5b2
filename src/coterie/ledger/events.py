"""What can happen to a federation: one frozen type per kind of record."""

from dataclasses import dataclass
from typing import TypeAlias, get_args

from coterie.ledger.bodies import (
    Blobs,
    Digest,
    Digests,
    Flag,
    Labels,
    Metrics,
    Number,
    Rising,
    RisingLists,
    Text,
    Texts,
    decode,
)
from coterie.ledger.interface import Damaged, Record

VERSION = 2
"""Of the records' form; `Created` says it."""


@dataclass(frozen=True)
class Created:
    """The ledger begins; `ledger` is a name that no other ledger has."""

    version: Number
    ledger: Text


@dataclass(frozen=True)
class Bound:
    """Files that the ledger belongs to, by name, each once and for good: a run's spec, data and first model."""

    files: Digests


@dataclass(frozen=True)
class Enrolled:
    """Users join; their numbers follow those of the users before. `keys` are their identity keys, if known."""

    names: Texts
    keys: Blobs


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan comes into force."""

    users: Number
    privacy: Number
    batches: RisingLists


@dataclass(frozen=True, eq=False)
class Chartered:
    """Batches of the plan in force have their charters, which are only bytes here."""

    plan: Number
    batches: Rising
    charters: Blobs


@dataclass(frozen=True, eq=False)
class Retired:
    """Batches of the plan in force are asked no more, for good."""

    plan: Number
    batches: Rising
    reason: Text


@dataclass(frozen=True, eq=False)
class Overridden:
    """All owners in these batches let their devices leave them: a later plan may split them."""

    plan: Number
    batches: Rising
    reason: Text


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
class Closed:
    """A round ends, with a result (`committed`) or given up for a reason: what was learned is learned either way.

    `learned` are places among what was asked, if `whole`, else among the cohort's users, sorted: a cohort that
    answered in full takes next to no bytes. `alone` are places among the users, of those whose update by itself
    must be taken as known. `lost` are places among what was asked, a list per reason. `files` are digests of what
    was written before the round was closed.
    """

    round: Number
    committed: Flag
    reason: Text
    whole: Flag
    learned: RisingLists
    alone: Rising
    reasons: Labels
    lost: RisingLists
    metrics: Metrics
    files: Digests


@dataclass(frozen=True, eq=False)
class Exposed:
    """Messages of a closed round came late: the server could open these sets too. All are users' numbers."""

    round: Number
    learned: RisingLists
    alone: Rising


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
    """Numbers about a round that came to be known after it, and digests of files that were made of it."""

    round: Number
    metrics: Metrics
    files: Digests


Event: TypeAlias = (
    Created
    | Bound
    | Enrolled
    | Planned
    | Chartered
    | Retired
    | Overridden
    | Opened
    | Closed
    | Exposed
    | Unfinished
    | Skipped
    | Noted
)

KINDS: dict[str, type[Event]] = {kind.__name__.lower(): kind for kind in get_args(Event)}


def kind_of(event: Event) -> str:
    """Return the word for an event.

    >>> kind_of(Skipped(round=3, reason="nobody is there"))
    'skipped'
    """
    return type(event).__name__.lower()


def event_of(record: Record) -> Event:
    """Return what a record says."""
    kind = KINDS.get(record.kind)
    if kind is None:
        raise Damaged(f"there is no kind of record {record.kind!r:.40}")
    return decode(kind, record.body)
