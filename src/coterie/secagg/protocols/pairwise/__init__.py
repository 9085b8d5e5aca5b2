"""SecAgg and SecAgg+ (docs/protocol.md §5): one sum over all included users, with masks that outlive losses."""

from collections.abc import Iterable, Sequence

from coterie.secagg.crypto.ring import RING_16, RING_32, Ring
from coterie.secagg.protocols.interface import Group, Party, RoundSetting
from coterie.secagg.protocols.pairwise.client import PairwiseParticipant
from coterie.secagg.protocols.pairwise.graph import complete_neighbourhood, sparse_neighbourhood
from coterie.secagg.protocols.pairwise.messages import (
    Advertisement,
    Agreement,
    Delivery,
    MaskedVector,
    Opening,
    Proposal,
    Receipt,
    Reveal,
    RevealCall,
    RosterCall,
    SharersCall,
    Sharing,
    Unmasking,
)
from coterie.secagg.protocols.pairwise.roster import NeighbourhoodOf
from coterie.secagg.protocols.pairwise.round import PHASES
from coterie.secagg.protocols.pairwise.server import PairwiseRound
from coterie.secagg.wire.framing import Message


class SecAgg:
    """The inner protocol `secagg`: everyone shares masks and secrets with everyone."""

    name = "secagg"
    rings: tuple[Ring, ...] = (RING_16, RING_32)
    phases = PHASES
    upload_phase = 3
    runs_unsealed = True
    server_sees = "One sum, over all complete batches of the cohort."
    from_client: tuple[type[Message], ...] = (
        Advertisement, Sharing, Receipt, Reveal, MaskedVector, Agreement, Unmasking,
    )  # fmt: skip
    from_server: tuple[type[Message], ...] = (RosterCall, Delivery, RevealCall, SharersCall, Proposal, Opening)
    neighbourhood_of: NeighbourhoodOf = staticmethod(complete_neighbourhood)

    def cohort_bound(self, per_round: int, largest_batch: int) -> int:
        """Return the users of a round, all of whose vectors are added."""
        return max(per_round, largest_batch)

    def least_included(self, batch_sizes: Iterable[int], privacy: int) -> int:
        """Return the largest batch and T more: else a sum less that batch's would be one of fewer than T users."""
        return max(batch_sizes) + privacy

    def participant(self, party: Party, threads: int) -> PairwiseParticipant:
        """Return a client's side of one round."""
        return PairwiseParticipant(party, self.neighbourhood_of, threads)

    def server_round(self, groups: Sequence[Group], setting: RoundSetting, threads: int) -> PairwiseRound:
        """Return the server's side of one round."""
        return PairwiseRound(groups, setting, self.neighbourhood_of, threads)


class SecAggPlus(SecAgg):
    """The inner protocol `secagg+`: masks and secrets are shared with a few neighbours that nobody chose."""

    name = "secagg+"
    neighbourhood_of: NeighbourhoodOf = staticmethod(sparse_neighbourhood)
