"""An update on its way to a masked vector (§1): of the right size, with a weight that the terms allow."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index

import numpy as np

from coterie.errors import UsageError
from coterie.secagg.crypto.masking import Mask, mask_into
from coterie.secagg.crypto.ring import Arrays, Floats, Layout, Ring, Words
from coterie.secagg.wire.terms import Terms


@dataclass(frozen=True, eq=False)
class Vector:
    """A flat update, its weight, and the terms that it was trained under."""

    values: Floats
    weight: int
    terms: Terms

    @classmethod
    def of(cls, update: Arrays, weight: int, terms: Terms) -> "Vector":
        """Take an update of the terms' dimension; a weight above the cap counts as the cap."""
        values = Layout.of(update).flatten(update)
        if values.size != terms.dimension:
            raise UsageError(f"the update has {values.size} values; the terms ask for {terms.dimension}")
        return cls(values, _capped(weight, terms.weight_cap), terms)

    def mask_into(
        self, words: Words, masks: Iterable[Mask], modulus: int, rng: np.random.Generator, threads: int
    ) -> None:
        """Write the quantised vector with all masks added."""
        quantisation = self.terms.quantisation(Ring(modulus))
        mask_into(words, self.values, self.weight, quantisation, masks, rng, threads=threads)


def _capped(weight: int, cap: int) -> int:
    """Return a weight, at most the cap; refuse what is no weight at all."""
    try:
        whole = index(weight)
    except TypeError:
        whole = 0
    if whole < 1:
        raise UsageError(f"the weight is {weight!r}; give a whole number from 1 up")
    return min(whole, cap)
