"""SecAgg and SecAgg+ (docs/protocol.md §5): a mask for every pair of neighbours, and one of each user's own.

A user's own mask comes from a seed, the others from its mask key. Of both every holder has a share, and after the
agreement gives one of the two: of the included users the seeds' shares, of the excluded ones the keys'.
A device can store its participant between two messages.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Self

import msgspec
import numpy as np

from coterie.errors import PeerError, TooFewUsersError
from coterie.secagg.batch.charter import Parameters, ordered
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import BoxKey, MaskKey, Seed, ShareKey, StoredSecrets, hkdf
from coterie.secagg.crypto.masking import Mask, add_masks
from coterie.secagg.crypto.ring import PRIME_31, RING_16, RING_32, Ring, Words
from coterie.secagg.crypto.shamir import LIMBS, SHARE_BYTES, are_shares, combine_all, correct, split
from coterie.secagg.protocols.agreement import AgreedProtocol
from coterie.secagg.protocols.agreement.boxes import DIGEST_BYTES, SentBoxes, leaves_of, sharing_tree
from coterie.secagg.protocols.agreement.client import AgreedParticipant
from coterie.secagg.protocols.agreement.messages import (
    ParticipantState,
    Positions,
    RosterLine,
    SharersCall,
    server_table,
)
from coterie.secagg.protocols.agreement.roster import BoxFormat, Roster, sparse_neighbourhood
from coterie.secagg.protocols.agreement.server import AgreedRound
from coterie.secagg.protocols.interface import Party
from coterie.secagg.wire.framing import Digest, Message, RoundAnswer, Signature, encode

PAIR_BYTES = 2 * SHARE_BYTES
"""A share of the self-mask seed, and one of the mask key."""
_SEED_TAG, _KEY_TAG = enc("coterie/v2/commitment", "seed"), enc("coterie/v2/commitment", "key")
MASKS_AT_ONCE = 256
"""Masks that are taken off in one pass over the sum: each needs a cipher of its own while it lasts."""

IsRight = Callable[[int, bytes], bool]
"""Whether a secret is the one that the user in this place shared."""


class Sharing(RoundAnswer, frozen=True, tag=12):
    """Client to server: boxes with shares for my neighbours, in the roster's order, one signature for all (§5)."""

    seed_digest: Digest
    own_commitments: Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
    """To the two shares that the sender keeps itself."""
    boxes: bytes
    signature: Signature


class Unmasking(RoundAnswer, frozen=True, tag=18):
    """Client to server: of each sharer whose holder I am one share, in the roster's order (§5)."""

    shares: bytes


def commitment(share: bytes, *, seed: bool) -> bytes:
    """Return the commitment to a share of a self-mask seed, or of a mask key.

    To whoever holds fewer than t' shares each other one is nine uniform words below p, 279 bits that nobody
    guesses: so a plain digest hides it.
    """
    return hashlib.sha256((_SEED_TAG if seed else _KEY_TAG) + share).digest()


def commitments(pair: bytes) -> bytes:
    """Return the commitments to both shares of a pair."""
    return commitment(pair[:SHARE_BYTES], seed=True) + commitment(pair[SHARE_BYTES:], seed=False)


PAIRS = BoxFormat(PAIR_BYTES, 2 * DIGEST_BYTES, lambda pair, _: commitments(pair), are_shares, leaves_of)


@dataclass(frozen=True)
class PairRoster(Roster):
    """A roster in which neighbours have a mask in common, and boxes hold pairs of shares."""

    has_masks = True
    box_format = PAIRS


@dataclass(frozen=True)
class SparsePairRoster(PairRoster):
    """The same, in which users have only a few neighbours."""

    neighbourhood_of = staticmethod(sparse_neighbourhood)


def pair_mask(roster: Roster, user: str, key: MaskKey, other: RosterLine) -> Mask:
    """Return the mask that a user and another one have in common, with the user's sign: the lower id adds it.

    seed = HKDF(X25519(own, other), salt = context, info = enc("coterie/v2/pair", roster digest, lower, higher)).
    """
    secret = key.agree(other.mask_key, who=other.user).reveal()
    info = enc("coterie/v2/pair", roster.digest, *ordered(user, other.user))
    sign = 1 if user.encode() < other.user.encode() else -1
    return Mask(Seed(hkdf(secret, roster.context, info)), sign)


def seed_digest(context: bytes, user: str, seed: bytes) -> bytes:
    """Return what tells a right self-mask seed from a wrong one, and nothing else about it."""
    return hashlib.sha256(enc("coterie/v2/seed", context, user, seed)).digest()


class StoredParticipant(StoredSecrets):
    """A participant between two messages; what it needs no more, or has not yet, is empty."""

    state: ParticipantState
    mask_key: bytes
    share_key: bytes
    seed: bytes
    words: bytes
    """The vector, with the seal's masks and the self mask."""
    lines: tuple[RosterLine, ...]
    boxes: dict[int, tuple[bytes, bytes]]
    shares: dict[int, bytes]
    sharers: Positions
    complete: bool
    """Whether the user's whole batch is among the sharers; it follows from them, and the stored form has it."""
    included: Positions


_BEFORE_UPLOAD = (
    ParticipantState.ADVERTISED, ParticipantState.SHARED, ParticipantState.RECEIVED, ParticipantState.REVEALED,
)  # fmt: skip


class PairwiseParticipant(AgreedParticipant):
    """A user in one round of SecAgg or SecAgg+; what it must remember between two messages can be stored."""

    def __init__(self, party: Party, roster_kind: type[Roster], threads: int) -> None:
        self._mask_key = MaskKey.generate()
        super().__init__(party, roster_kind, threads, self._mask_key.public)

    @classmethod
    def restored(cls, party: Party, roster_kind: type[Roster], stored: bytes) -> Self:
        """Return the participant that `store` wrote last, which is not finished."""
        self = cls.__new__(cls)
        saved = StoredParticipant.decode(stored)
        self._enter(party, roster_kind, threads=1)
        self._state = saved.state
        self._shares, self._sharers, self._included = saved.shares, saved.sharers, frozenset(saved.included)
        if saved.share_key:
            self._share_key = ShareKey.from_bytes(saved.share_key)
        if saved.lines:
            self._roster = roster_kind(self._setting, saved.lines)
            self._own_position = self._roster.position[party.user]
            keys = {holder: BoxKey.from_bytes(key) for holder, (key, _) in saved.boxes.items()}
            boxes = {holder: box for holder, (_, box) in saved.boxes.items()}
            self._sent = SentBoxes(self._roster, self._own_position, keys, boxes)
        if saved.words:
            self._mask_key, self._seed = MaskKey.from_bytes(saved.mask_key), Seed(saved.seed)
            self._make_room()
            self.words[:] = np.frombuffer(saved.words, dtype=self._ring.dtype)
            self.masks = ()
        if saved.state is ParticipantState.ADVERTISED:
            self._advertise(self._mask_key.public)
        return self

    def store(self) -> bytes:
        """Return everything that `restored` needs: secrets, for the device's own durable store and nobody else.

        Whoever stores it must do so before the answer leaves, and may restore only what was stored last: a device
        that went back would sign a second division of the sharers, or open one user's seed and key.
        """
        pending, alone = self._state in _BEFORE_UPLOAD, self._state is ParticipantState.ADVERTISED
        sent = self._sent if pending and not alone else None
        return StoredParticipant(
            state=self._state,
            mask_key=self._mask_key.to_bytes() if pending else b"",
            share_key=self._share_key.to_bytes() if alone or self._state is ParticipantState.SHARED else b"",
            seed=self._seed.reveal() if pending else b"",
            words=self.words.tobytes() if pending else b"",
            lines=() if alone else self._roster.lines,
            boxes={holder: (sent.keys[holder].to_bytes(), box) for holder, box in sent.boxes.items()}
            if sent
            else {},
            shares=self._shares,
            sharers=self._sharers,
            complete=not pending and self._is_whole(self._sharers),
            included=tuple(sorted(self._included)),
        ).encode()

    def _split(self, roster: Roster, own_position: int) -> dict[int, bytes]:
        """Share the seed and the mask key."""
        holders = roster.graph.holders(own_position)
        secrets = (self._seed.reveal(), self._mask_key.to_bytes())
        points = [place + 1 for place in holders]
        shares = split(secrets, roster.graph.neighbourhood.shares_needed, points, Seed.generate()).astype("<u4")
        return {place: share.tobytes() for place, share in zip(holders, shares, strict=True)}

    def _sharing(self, roster: Roster, own_position: int, own: bytes, boxes: Iterable[bytes]) -> bytes:
        digest = seed_digest(self._setting.context, self._party.user, self._seed.reveal())
        content, committed = b"".join(boxes), commitments(own)
        tree = sharing_tree(digest + committed, content, PAIRS)
        signature = self._party.identity.sign(*roster.boxes_to_sign(own_position, tree.root))
        return encode(Sharing(*self._head, digest, committed, content, signature))

    def _pair_masks(self, others: Iterable[RosterLine]) -> list[Mask]:
        return [pair_mask(self._roster, self._party.user, self._mask_key, line) for line in others]

    def _upload(self, message: SharersCall) -> memoryview | None:
        answer = super()._upload(message)
        del self._mask_key
        return answer

    def _opening(self) -> bytes:
        """Give seed shares of the included, and key shares of the excluded."""
        shares = [
            pair[:SHARE_BYTES] if place in self._included else pair[SHARE_BYTES:]
            for place, pair in sorted(self._shares.items())
        ]
        return encode(Unmasking(*self._head, b"".join(shares)))


class PairwiseRound(AgreedRound):
    """The server's side of one round of SecAgg or SecAgg+."""

    table = server_table(Sharing, Unmasking)

    def _clear_secrets(self) -> None:
        self._sharings: dict[int, Sharing] = {}
        self._shares: dict[int, tuple[list[int], Words]] = {}
        """By holder: whose shares it sent, and the shares, all of them right."""

    def _take_secret(self, user: str, message: Message, tail: memoryview) -> None:
        del tail
        place = self._roster.position[user]
        match message:
            case Sharing():
                statement = message.seed_digest + message.own_commitments
                self._boxes.take_boxes(place, statement, message.boxes, message.signature)
                self._sharings[place] = message
            case Unmasking():
                self._take_shares(user, place, message.shares)

    def _demand_holders(self, places: Iterable[int]) -> None:
        graph, needed = self._roster.graph, self._roster.graph.neighbourhood.shares_needed
        fewest = int(graph.count_holders(np.array(tuple(places)))[list(self._sharers)].min())
        if fewest < needed:
            raise TooFewUsersError(f"{fewest} holders of a user's secret are left; {needed} are needed to open it")

    def _take_shares(self, user: str, holder: int, shares: bytes) -> None:
        """Keep a holder's shares, but for those that their owners did not commit to: these are as if lost."""
        sharers, seeds = frozenset(self._sharers), frozenset(self._included)
        owners = [owner for owner in self._roster.graph.holders(holder) if owner in sharers]
        if len(shares) != SHARE_BYTES * len(owners):
            raise PeerError(f"{user} sent {len(shares)} bytes of shares, not {SHARE_BYTES * len(owners)}")
        words: Words = np.frombuffer(shares, dtype="<u4").reshape(len(owners), LIMBS)
        # A share has words below p: an honest holder would have complained about others.
        right = [bool(good) for good in np.all(words < PRIME_31.modulus, axis=1)]
        for number, owner in enumerate(owners):
            share = shares[SHARE_BYTES * number : SHARE_BYTES * (number + 1)]
            both, seed = self._commitments(owner, holder), owner in seeds
            right[number] &= commitment(share, seed=seed) == (both[:DIGEST_BYTES] if seed else both[DIGEST_BYTES:])
        self._shares[holder] = [owner for owner, good in zip(owners, right, strict=True) if good], words[right]
        if not all(right):
            self.liars[user] = f"sent {right.count(False)} wrong shares"
            self._irregular = True

    def _commitments(self, owner: int, holder: int) -> bytes:
        """Return what an owner committed to for a holder: a share of its seed, and one of its key."""
        if owner == holder:
            return self._sharings[owner].own_commitments
        return bytes(self._boxes.box(owner, holder)[PAIRS.ciphertext_end :])

    def _remove_masks(self, total: Words) -> None:
        """Take off the masks that did not cancel: a secret that does not come out ends the round."""
        roster, recovery = self._roster, Recovery(self._roster, self._shares)
        masks = self._remaining_masks(recovery)
        try:
            while some := list(islice(masks, MASKS_AT_ONCE)):
                add_masks(total, some, self._setting.quantiser.ring, threads=self._threads)
        finally:
            self.liars |= {roster.lines[place].user: reason for place, reason in recovery.liars.items()}
            self._irregular |= bool(recovery.liars)

    def _remaining_masks(self, recovery: "Recovery") -> Iterator[Mask]:
        """Yield every mask that is left in the sum, with the sign that removes it.

        Those are the self masks of the included users, and the masks that they have in common with sharers who are
        excluded.
        """
        roster, included = self._roster, frozenset(self._included)

        def right_seed(place: int, secret: bytes) -> bool:
            digest = seed_digest(roster.context, roster.lines[place].user, secret)
            return digest == self._sharings[place].seed_digest

        def right_key(place: int, secret: bytes) -> bool:
            return MaskKey.from_bytes(secret).public == roster.lines[place].mask_key

        for _, secret in recovery.secrets(self._included, right_seed):
            yield Mask(Seed(secret), -1)
        near = {place: included.intersection(roster.graph.neighbours(place)) for place in self._excluded}
        needed = [place for place, neighbours in near.items() if neighbours]
        for place, secret in recovery.secrets(needed, right_key):
            key, user = MaskKey.from_bytes(secret), roster.lines[place].user
            # The excluded user's own sign is the opposite of the one in the included user's vector.
            yield from (pair_mask(roster, user, key, roster.lines[other]) for other in sorted(near[place]))


class Recovery:
    """Secrets that come back from shares, each of which is the one that its owner committed to."""

    def __init__(self, roster: Roster, by_holder: Mapping[int, tuple[list[int], Words]]) -> None:
        """Take the shares of each holder, given with their owners; rows are sorted by owner, then by holder."""
        owners = np.array([owner for places, _ in by_holder.values() for owner in places], dtype=np.int64)
        counts = [len(places) for places, _ in by_holder.values()]
        holders = np.repeat(np.array(list(by_holder), dtype=np.int64), counts)
        limbs = np.concatenate([shares for _, shares in by_holder.values()] or [np.empty((0, LIMBS), np.uint32)])
        order = np.lexsort((holders, owners))
        self._owners, self._points, self._limbs = owners[order], holders[order] + 1, limbs[order]
        self._roster, self._threshold = roster, roster.graph.neighbourhood.shares_needed
        self.liars: dict[int, str] = {}
        """Users who committed to shares that lie on no one polynomial."""

    def secrets(self, owners: Sequence[int], is_right: IsRight) -> Iterator[tuple[int, bytes]]:
        """Yield the secret of each owner, from its first shares; TooFewUsersError if one does not come out."""
        if not owners:
            return
        starts, ends = (np.searchsorted(self._owners, np.array(owners), side) for side in ("left", "right"))
        fewest = int((ends - starts).min())
        if fewest < self._threshold:
            raise TooFewUsersError(
                f"{fewest} shares of a user's secret came; {self._threshold} are needed to open it"
            )
        rows = starts[:, np.newaxis] + np.arange(self._threshold)
        points = self._points[rows]
        if (points == points[0]).all():  # everyone's shares are at the same points: one basis for all
            points = points[:1]
        secrets = combine_all(points, self._limbs[rows])
        for owner, secret, start, end in zip(owners, secrets, starts.tolist(), ends.tolist(), strict=True):
            if secret is not None and is_right(owner, secret):
                yield owner, secret
            else:
                yield owner, self._corrected(owner, slice(start, end), is_right)

    def _corrected(self, owner: int, rows: slice, is_right: IsRight) -> bytes:
        """Return a secret whose owner committed to some wrong shares: it lied, and nobody else did."""
        user, limbs = self._roster.lines[owner].user, self._limbs[rows]
        self.liars[owner] = "shared a secret in pieces that do not belong together"
        corrected = correct(self._points[rows].tolist(), limbs, self._threshold)
        if corrected is None or not is_right(owner, corrected[0]):
            raise TooFewUsersError(
                f"{user} {self.liars[owner]}: its secret does not come out of {len(limbs)} shares"
            )
        return corrected[0]


class SecAgg(AgreedProtocol):
    """The inner protocol `secagg`: everyone shares masks and secrets with everyone."""

    name = "secagg"
    rings: tuple[Ring, ...] = (RING_16, RING_32)
    storable = True
    from_client = PairwiseRound.kinds
    participant_kind = PairwiseParticipant
    round_kind = PairwiseRound
    roster_kind: type[Roster] = PairRoster

    def thresholds(self, users: int, parameters: Parameters) -> dict[str, int]:
        """Return how many must agree, how many neighbours a user has, and how many shares open a secret."""
        near = self.roster_kind.neighbourhood_of(users, parameters)
        numbers = {"neighbours each (k)": near.degree, "shares reopen a secret (t')": near.shares_needed}
        return super().thresholds(users, parameters) | numbers

    def restored(self, party: Party, stored: bytes) -> PairwiseParticipant:
        """Return a client's side of one round as its device stored it."""
        return PairwiseParticipant.restored(party, self.roster_kind, stored)


class SecAggPlus(SecAgg):
    """The inner protocol `secagg+`: masks and secrets are shared with a few neighbours that nobody chose."""

    name = "secagg+"
    roster_kind = SparsePairRoster
