"""The roster of a pairwise round, fixed once users have advertised: who takes part, with which keys (§5)."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from coterie.errors import PeerError
from coterie.secagg.batch.charter import LARGEST_NAME
from coterie.secagg.batch.identity import VerifyMember
from coterie.secagg.batch.parameters import Parameters
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import MaskKey, Seed, ShareKey, check_exchange_key, verify_signature
from coterie.secagg.protocols.interface import RoundSetting
from coterie.secagg.protocols.pairwise.contents import PAIRS, BoxFormat
from coterie.secagg.protocols.pairwise.graph import Graph, Neighbourhood
from coterie.secagg.protocols.pairwise.messages import Advertisement, Positions, RosterLine


def encode_positions(positions: Iterable[int]) -> bytes:
    """Return users as they are signed: the place of each, 4 bytes, little-endian."""
    return np.array(tuple(positions), dtype="<u4").tobytes()


def check_positions(positions: Positions, users: int, what: str) -> None:
    """Refuse a list that names a user whom the roster does not have, or not in ascending order, each once."""
    if positions and positions[-1] >= users:
        raise PeerError(f"the server's {what} name user {positions[-1]} of a roster of {users}")
    if any(later <= earlier for earlier, later in pairwise(positions)):
        raise PeerError(f"the server's {what} are not in ascending order, or name a user twice")


NeighbourhoodOf: TypeAlias = Callable[[int, Parameters], Neighbourhood]
"""How many neighbours and shares there are among so many users: what SecAgg and SecAgg+ differ in."""


@dataclass(frozen=True)
class Roster:
    """The users of one round in the order of their ids' bytes; a user is named by its place, counted from 0."""

    setting: RoundSetting
    lines: tuple[RosterLine, ...]
    neighbourhood_of: NeighbourhoodOf

    @property
    def has_masks(self) -> bool:
        """Whether two users have a mask in common, and everyone a key for that."""
        return True

    @property
    def box_format(self) -> BoxFormat:
        """What its users' boxes hold."""
        return PAIRS

    @property
    def context(self) -> bytes:
        """What every key, signature and message of the round is tied to."""
        return self.setting.context

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over the context and all lines but their signatures."""
        lines = (enc(line.user, line.identity, line.mask_key, line.share_key) for line in self.lines)
        return hashlib.sha256(enc("coterie/v2/roster", self.context, len(self.lines), *lines)).digest()

    @cached_property
    def position(self) -> dict[str, int]:
        """Every user's place."""
        return {line.user: place for place, line in enumerate(self.lines)}

    @property
    def threshold(self) -> int:
        """How many users of the whole roster must share, and sign an agreement (t)."""
        return self.setting.parameters.threshold(len(self.lines))

    @cached_property
    def graph(self) -> Graph:
        """Who holds shares of whom; no message can change it."""
        neighbourhood = self.neighbourhood_of(len(self.lines), self.setting.parameters)
        return Graph(len(self.lines), neighbourhood, Seed(hashlib.sha256(self.context + self.digest).digest()))

    def boxes(self, place: int, root: bytes) -> tuple[bytes | str, ...]:
        """Return what a user signs for all its boxes, after its purpose."""
        return self.context, self.digest, self.lines[place].user, root

    def complaint(self, sender: int, holder: int, box_digest: bytes) -> tuple[bytes | str, ...]:
        """Return what a holder signs who complains about a sender's box, after its purpose."""
        return self.context, self.digest, self.lines[sender].user, self.lines[holder].user, box_digest

    def upload(self, sharers: Positions) -> tuple[bytes, ...]:
        """Return what is signed with a vector, after its purpose: which masks it has follows from that."""
        return self.context, self.digest, encode_positions(sharers)

    def agreement(self, sharers: Positions, included: Positions, excluded: Positions) -> tuple[bytes, ...]:
        """Return what is signed in an agreement, after its purpose."""
        return (
            self.context,
            self.digest,
            encode_positions(sharers),
            encode_positions(included),
            encode_positions(excluded),
        )


def check_line(line: RosterLine, context: bytes, *, masks: bool = True) -> None:
    """Refuse keys of low order, and keys that the line's identity did not sign for this round.

    `masks` says whether there is a key for pairwise masks.
    """
    if masks:
        check_exchange_key(line.mask_key, MaskKey.kind, line.user)
    elif line.mask_key:
        raise PeerError(f"{line.user!r} has a mask key, and this round has no pairwise masks")
    check_exchange_key(line.share_key, ShareKey.kind, line.user)
    signed = (context, line.user, line.mask_key, line.share_key)
    verify_signature(line.identity, line.signature, "advertise", *signed, who=line.user)


def check_roster(
    roster: Roster,
    own: Advertisement,
    batch: Mapping[str, bytes],
    verify_member: VerifyMember,
    *,
    least: int,
    most: int,
) -> None:
    """Refuse a roster in which this user could be deceived about whom its round is with (§5).

    `batch` holds the identity keys of the user's own batch. Signatures are verified for the user's neighbours,
    with whom it shares masks; of everyone else only the identity key matters, for the agreement.
    """
    if not least <= len(roster.lines) <= most:
        raise PeerError(f"the server's roster has {len(roster.lines)} users; this round takes {least} to {most}")
    _check_lines(roster, batch)
    mine = roster.position.get(own.user)
    if mine is None:
        raise PeerError(f"the server's roster does not have {own.user!r}, this device's user")
    line = roster.lines[mine]
    if (line.mask_key, line.share_key, line.signature) != (own.mask_key, own.share_key, own.signature):
        raise PeerError(f"the server's roster has {own.user!r}, this device's user, with other keys than it sent")
    for place in roster.graph.neighbours(mine):
        check_line(roster.lines[place], roster.context, masks=roster.has_masks)
    for line in roster.lines:
        # Not just truth: a coroutine that nobody awaited would be true.
        if verify_member(line.user, line.identity) is not True:
            raise PeerError(f"verify_member refused {line.user!r} with the identity {line.identity.hex()}")


def _check_lines(roster: Roster, batch: Mapping[str, bytes]) -> None:
    """Refuse users out of order or twice, keys that come twice, and other identity keys than the charter's."""
    for earlier, later in pairwise(roster.lines):
        if earlier.user.encode() >= later.user.encode():
            raise PeerError(f"the server's roster is not in order, or has {later.user!r} twice")
    for line in roster.lines:
        if len(line.user.encode()) > LARGEST_NAME:
            raise PeerError(f"the server's roster has an id of {len(line.user.encode())} bytes: {line.user!r}")
        if line.identity != batch.get(line.user, line.identity):
            raise PeerError(f"the server's roster has {line.user!r} with another identity key than the charter")
    for kind in ("identity", "mask_key", "share_key") if roster.has_masks else ("identity", "share_key"):
        if len({getattr(line, kind) for line in roster.lines}) < len(roster.lines):
            raise PeerError(f"two users of the server's roster have the same {kind.replace('_', ' ')}")
