"""What SecAgg, SecAgg+ and LightSecAgg have in common: boxes with shares, one agreement, and then one sum (§5)."""

from collections.abc import Iterable, Sequence

from coterie.secagg.batch.charter import Parameters
from coterie.secagg.protocols.agreement.client import AgreedParticipant
from coterie.secagg.protocols.agreement.messages import FROM_SERVER
from coterie.secagg.protocols.agreement.roster import Roster
from coterie.secagg.protocols.agreement.server import AgreedRound, least_included
from coterie.secagg.protocols.interface import Group, InnerProtocol, Party, RoundSetting


class AgreedProtocol(InnerProtocol):
    """An inner protocol in which the users agree whose vectors are summed before anything is opened."""

    phases = 6
    upload_phase = 3
    runs_unsealed = True
    server_sees = "One sum, over all complete batches of the cohort."
    from_server = FROM_SERVER
    participant_kind: type[AgreedParticipant]
    round_kind: type[AgreedRound]
    roster_kind: type[Roster]

    def cohort_bound(self, per_round: int, largest_batch: int) -> int:
        """Return the users of a round, all of whose vectors are added."""
        return max(per_round, largest_batch)

    def least_included(self, batch_sizes: Iterable[int], privacy: int) -> int:
        """Return the fewest users that a device wants in a sum: its batch and T more."""
        return least_included(batch_sizes, privacy)

    def thresholds(self, users: int, parameters: Parameters) -> dict[str, int]:
        """Return how many must sign the agreement, and further numbers of the protocol."""
        return {"users must sign": parameters.threshold(users)}

    def participant(self, party: Party, threads: int) -> AgreedParticipant:
        """Return a client's side of one round."""
        return self.participant_kind(party, self.roster_kind, threads)

    def server_round(self, groups: Sequence[Group], setting: RoundSetting, threads: int) -> AgreedRound:
        """Return the server's side of one round."""
        return self.round_kind(groups, setting, self.roster_kind, threads)
