"""The seal: masks that cancel only in the sum over a whole batch, and that only its members can compute."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import Charter
from coterie.secagg.crypto.encoding import enc
from coterie.secagg.crypto.keys import SealKey, Seed, hkdf, hkdf_expand
from coterie.secagg.crypto.masking import Mask


@dataclass(frozen=True, eq=False)
class Chain:
    """A member's chain keys k_{j,position}, one for each other member j (§3).

    The keys before `position` are gone: a stolen device opens no past round that it sealed.
    """

    position: int
    keys: tuple[tuple[str, Seed], ...]

    def check_round(self, round_: int, largest_skip: int) -> None:
        """Refuse a round that was passed already, or that lies too far ahead."""
        if round_ < self.position:
            raise PeerError(f"the server asked for round {round_}; this device is past it, at {self.position}")
        if round_ >= self.position + largest_skip:
            raise PeerError(
                f"the server asked for round {round_}, more than {largest_skip} ahead of {self.position}"
            )

    def advance(self, to: int) -> "Chain":
        """Return the chain at a later position."""
        moved = []
        for user, key in self.keys:
            secret = key.reveal()
            for _ in range(to - self.position):
                secret = ratchet(secret)
            moved.append((user, Seed(secret)))
        return Chain(to, tuple(moved))


def ratchet(key: bytes) -> bytes:
    """Return k_{r+1} = HKDF-Expand(k_r, "coterie/v2/ratchet")."""
    return hkdf_expand(key, b"coterie/v2/ratchet")


def start_chain(charter: Charter, user: str, seal_key: SealKey) -> Chain:
    """Return the chain keys of the charter's first round, HKDF(X25519(own, j), charter digest, info) for each j.

    The info is enc("coterie/v2/chain", lower, higher), with the two ids in the order of their bytes.
    """
    keys = []
    for member in charter.members:
        if member.user != user:
            shared = seal_key.agree(member.seal, who=member.user).reveal()
            info = enc("coterie/v2/chain", *ordered(user, member.user))
            keys.append((member.user, Seed(hkdf(shared, charter.digest, info))))
    return Chain(charter.first, tuple(keys))


def seal_masks(chain: Chain, round_: int, terms_digest: bytes, user: str) -> list[Mask]:
    """Return a member's masks of one round; the chain must stand at that round.

    seed = HKDF-Expand(k_{j,r}, enc("coterie/v2/seal", r, terms digest, lower, higher)); the lower id adds the
    mask, the higher subtracts it.
    """
    if chain.position != round_:
        raise UsageError(f"the chain stands at round {chain.position}, not at {round_}")
    masks = []
    for other, key in chain.keys:
        info = enc("coterie/v2/seal", round_, terms_digest, *ordered(user, other))
        sign = 1 if user.encode() < other.encode() else -1
        masks.append(Mask(Seed(hkdf_expand(key.reveal(), info)), sign))
    return masks


def ordered(one: str, other: str) -> tuple[str, str]:
    """Return two ids in the order of their bytes."""
    return (one, other) if one.encode() < other.encode() else (other, one)


class Slot(Protocol):
    """A device's record for one data scope, inside a transaction: read it, assign the next."""

    content: bytes | None


class DeviceStore(Protocol):
    """Where a device keeps its records, durably (§3).

    Leaving the transaction's block normally commits it to disk before control returns; an exception rolls it
    back. The block holds an exclusive lock among all processes that share the store.
    """

    def transaction(self, scope: str) -> AbstractContextManager[Slot]:
        """Open the record of one data scope."""
        ...
