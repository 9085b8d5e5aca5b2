"""What a pairwise round is, for everybody in it (§5)."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from coterie.secagg.crypto.encoding import enc
from coterie.secagg.wire.terms import Terms

PAIRWISE = ("secagg", "secagg+")
"""The inner protocols that run in these phases."""


@dataclass(frozen=True)
class Setting:
    """One round: sealed or unsealed, its inner protocol, scope, number and terms."""

    kind: str
    """The purpose tag: no key, signature or message of an unsealed round fits a sealed one."""
    inner: str
    scope: str
    round: int
    terms: Terms

    @cached_property
    def context(self) -> bytes:
        """The digest that every key, signature and message of the round is tied to."""
        tag = f"coterie/v1/{self.kind}"
        return hashlib.sha256(enc(tag, self.inner, self.scope, self.round, self.terms.digest)).digest()
