"""Users in rounds without a seal: for baselines, with no promise over many rounds (§4)."""

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.identity import VerifyMember
from coterie.secagg.batch.parameters import Parameters
from coterie.secagg.batch.rules import DeviceConfiguration, check_protocol, check_recipe, check_terms
from coterie.secagg.client import flat_update, rounding_key
from coterie.secagg.crypto.keys import IdentityKey, Seed
from coterie.secagg.crypto.layout import Arrays
from coterie.secagg.crypto.masking import mask_into
from coterie.secagg.crypto.quantiser import Quantiser
from coterie.secagg.crypto.ring import Ring
from coterie.secagg.protocols import PROTOCOLS, messages_from_server
from coterie.secagg.protocols.interface import Participant, Party, RoundSetting, Task
from coterie.secagg.wire.framing import Data
from coterie.secagg.wire.messages import UnsealedCall
from coterie.secagg.wire.states import CLIENT_UNSEALED, ClientState, following, refusal
from coterie.secagg.wire.terms import called_terms
from coterie.values.checks import check_count


class UnsealedClient:
    """One user's side of unsealed rounds, with the shape of a `SealedClient`; it remembers nothing durably.

    It is in no batch. Every round that completes shows the sum of those who were in it, and many rounds show more
    (docs/guarantee.md).
    """

    def __init__(
        self,
        user: str,
        identity: IdentityKey,
        configuration: DeviceConfiguration,
        verify_member: VerifyMember,
        *,
        largest_message: int = 1 << 28,
        rounding_secret: Seed | None = None,
    ) -> None:
        self.user, self._identity = user, identity
        self._configuration, self._verify_member = configuration, verify_member
        self._largest_message = largest_message
        self._rounding = (Seed.generate() if rounding_secret is None else rounding_secret).reveal()
        self._tasks: dict[str, tuple[Task, RoundSetting]] = {}
        self._rounds: dict[str, Participant] = {}
        self._next: dict[str, int] = {}

    def receive(self, data: Data) -> bytes | memoryview | Task | None:
        """Take in a message from the server; a violation raises PeerError and changes nothing."""
        message, _ = messages_from_server.decode(data, self._largest_message)
        if isinstance(message, UnsealedCall):
            return self._called(message)
        scope = getattr(message, "scope", "")
        participant = self._rounds.get(scope)
        if participant is None:
            raise refusal(CLIENT_UNSEALED, self._state(scope), message, "the server")
        answer = participant.take(message)
        if participant.finished and self._rounds.get(scope) is participant:
            del self._rounds[scope]
        return answer

    def _state(self, scope: str) -> ClientState:
        if scope in self._rounds:
            return ClientState.ANSWERING
        return ClientState.CALLED if scope in self._tasks else ClientState.READY

    def _called(self, message: UnsealedCall) -> Task:
        following(CLIENT_UNSEALED, self._state(message.scope), message, "the server")
        configuration = self._configuration
        if message.scope not in configuration.scopes:
            raise PeerError(
                f"the server named the scope {message.scope!r}; this device serves "
                f"{', '.join(sorted(configuration.scopes))}"
            )
        try:
            quantiser = Quantiser(Ring(message.modulus), message.clip, message.weight_cap, message.cohort)
            parameters = Parameters(message.colluders, message.losses)
        except UsageError as error:
            raise PeerError(f"the server's quantiser or parameters cannot be: {error}") from None
        protocol = check_protocol(message.inner, quantiser, parameters, configuration)
        if not protocol.runs_unsealed:
            raise PeerError(f"the server called an unsealed round of {message.inner!r}, which runs sealed only")
        check_recipe(message.recipe, configuration)
        if message.round < self._next.get(message.scope, 0):
            raise PeerError(f"the server asked for round {message.round}; this client is past it")
        terms = called_terms(message)
        check_terms(terms, protocol.least_included([1], 1), configuration)
        task = Task(message.scope, b"", message.round, terms, message.recipe)
        setting = RoundSetting(
            "unsealed", message.inner, message.scope, message.round, terms, quantiser, parameters
        )
        self._tasks[message.scope] = task, setting
        self._rounds.pop(message.scope, None)
        return task

    def seal(self, task: Task, update: Arrays, *, weight: int = 1, threads: int = 1) -> bytes | memoryview:
        """Return the first answer to a task; the vector, quantised and masked, waits for its phase."""
        asked = self._tasks.get(task.scope)
        if asked is None or asked[0] != task:
            raise UsageError(f"round {task.round} of scope {task.scope!r} is not the one that was asked for last")
        setting = asked[1]
        values, weight = flat_update(update, task.terms), check_count(weight, "the weight")
        party = Party(
            user=self.user,
            identity=self._identity,
            verify_member=self._verify_member,
            batch={self.user: self._identity.public},
            charter=b"",
            setting=setting,
            largest_roster=self._configuration.largest_roster,
        )
        participant = PROTOCOLS[setting.inner].participant(party, threads)
        rounding = rounding_key(self._rounding, task.terms)
        weighted = (values, min(weight, setting.quantiser.weight_cap), setting.quantiser)
        mask_into(participant.words, *weighted, participant.masks, rounding, threads=threads)
        del self._tasks[task.scope]
        self._rounds[task.scope] = participant
        self._next[task.scope] = task.round + 1
        return participant.start()
