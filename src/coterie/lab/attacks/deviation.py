"""A server that breaks the rules to get one user's update: each attack, and what it got (docs/attacks.md).

Over many rounds an honest server learns what its cohorts' differences show. A deviating one makes the difference
that it wants in a round or two. Without a seal every one of these attacks gives the update; against the seal each
gives noise, or a device's refusal.

The devices are honest: real clients, real bytes, sealed or not. A server asks for sums by its `ServerBehaviour`
of a round. What it should do is the default; all else is a deviation, which the devices answer, refuse, or answer
with what adds up to noise.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, TypeAlias

import numpy as np

from coterie.errors import PeerError, TooFewUsersError
from coterie.lab.attacks.score import FOUND
from coterie.secagg import (
    BatchRules,
    Charter,
    Client,
    DeviceConfiguration,
    Exposure,
    IdentityKey,
    InnerProtocol,
    Membership,
    MemoryStore,
    Outgoing,
    Quantiser,
    SealedClient,
    ServerRound,
    Sum,
    Task,
    Terms,
    UnsealedClient,
    found_batch,
    unsealed_round,
)
from coterie.secagg.crypto.quantiser import dequantise
from coterie.secagg.crypto.ring import Words
from coterie.secagg.protocols import messages_from_client
from coterie.secagg.protocols.agreement.messages import (
    Advertisement,
    MaskedVector,
    RosterCall,
    RosterLine,
)
from coterie.secagg.protocols.agreement.server import AgreedRound
from coterie.secagg.protocols.interface import Group, RoundSetting
from coterie.secagg.protocols.open import SealedVector
from coterie.secagg.server import round_call, unsealed_call
from coterie.secagg.wire.framing import encode
from coterie.values import FloatArray

SCOPE = "photographs"

TrainUser: TypeAlias = Callable[[str, bytes, bytes], FloatArray]
"""A user's update, from its id, the model that it was sent, and the training configuration."""


@dataclass(frozen=True)
class DevicePopulation:
    """Who takes part, in which batches, and what their devices compute."""

    batches: tuple[tuple[str, ...], ...]
    train: TrainUser
    model: bytes
    """The global model, which a server that keeps to the rules sends to everybody."""
    dimension: int
    recipe: bytes = b"{}"
    clip: float = 1.0
    weights: Mapping[str, int] = field(default_factory=dict)
    """Weights of users; everyone else has 1."""
    weight_cap: int = 1

    @property
    def users(self) -> tuple[str, ...]:
        """All users, batch by batch."""
        return tuple(user for batch in self.batches for user in batch)

    def batch_of(self, user: str) -> tuple[str, ...]:
        """Return the batch of a user."""
        return next(batch for batch in self.batches if user in batch)

    def rules(self, protocol: InnerProtocol) -> BatchRules:
        """Return the rules of its batches: T is the size of the smallest, words are as wide as they come."""
        quantiser = Quantiser(protocol.rings[-1], self.clip, self.weight_cap, cohort=len(self.users))
        privacy = min(map(len, self.batches))
        return BatchRules(SCOPE, privacy, quantiser, protocol.name, recipe=self.recipe)

    def configuration(self, protocol: InnerProtocol) -> DeviceConfiguration:
        """Return the owners' configuration of their devices."""
        privacy = max(2, min(map(len, self.batches)))
        return DeviceConfiguration(
            scopes=frozenset({SCOPE}), least_privacy=privacy, protocols=frozenset({protocol.name})
        )


@dataclass(frozen=True)
class ServerBehaviour:
    """What a server does in one round over a model: unless said otherwise, what it should."""

    model: bytes
    left_out: frozenset[str] = frozenset()
    """Users whom it does not ask."""
    lost: frozenset[str] = frozenset()
    """Users whose vectors it pretends never to have received."""
    models: Mapping[str, bytes] = field(default_factory=dict)
    """Other models, for the users to whom it sends them."""
    recipes: Mapping[str, bytes] = field(default_factory=dict)
    """Other training configurations, for the users to whom it sends them."""
    quantiser: Quantiser | None = None
    """Another quantiser than that of the batches' charters."""


@dataclass
class Transcript:
    """What a round brought the server: vectors, and the devices' refusals."""

    vectors: dict[str, Words] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def take(self, server: ServerRound, user: str, answer: bytes | memoryview, quantiser: Quantiser) -> None:
        """Note a user's answer, and give it to the server's machine; what that refuses stays with the server."""
        message, tail = messages_from_client.decode(answer)
        if isinstance(message, SealedVector | MaskedVector):
            self.vectors[user] = np.frombuffer(tail, dtype=quantiser.ring.dtype)
        with suppress(PeerError):  # what its own machine refuses, a deviating server has all the same
            server.receive(user, answer)


class Devices(ABC):
    """The devices of a population, one round after the other; `sum` is all that a server can ask of them."""

    def __init__(self, population: DevicePopulation, protocol: InnerProtocol) -> None:
        self.population, self.protocol = population, protocol
        self.rules = population.rules(protocol)
        self.exposures: list[Exposure] = []
        """What each round so far gave away by the server's own account."""
        self._keys = {user: IdentityKey.generate() for user in population.users}
        self._identities = {user: key.public for user, key in self._keys.items()}
        self._rounds = 0

    sealed: bool
    """Whether vectors carry the seal of their batch."""
    clients: Mapping[str, Client]

    @abstractmethod
    def sum(self, behaviour: ServerBehaviour) -> Sum:
        """Return the sum of what all users that were asked, and not lost, gave in one round.

        A PeerError is a device's refusal, in its own words. Where masks did not cancel, the sum is noise.
        """

    def _is_real(self, user: str, identity: bytes) -> bool:
        """Tell devices who is real: the server cannot invent users here, which would be an attack of its own."""
        return self._identities.get(user) == identity

    @contextmanager
    def _round(self, server: ServerRound) -> Iterator[Transcript]:
        """Give the transcript of a round; one that comes to nothing raises the first refusal, if there is one."""
        transcript = Transcript()
        try:
            yield transcript
        except TooFewUsersError as error:
            raise PeerError(next(iter(transcript.refusals.values()), str(error))) from None
        finally:
            self._rounds += 1
            self.exposures.append(server.exposure())

    def _model(self, user: str, task: Task, behaviour: ServerBehaviour) -> bytes:
        """Return the model that a device trains: the one in its terms."""
        del user, behaviour
        return task.terms.model

    def _exchange(
        self, server: ServerRound, outgoing: Outgoing, behaviour: ServerBehaviour, transcript: Transcript
    ) -> None:
        """Carry messages until the server has none, and note what came of it; a refusal is a missing answer."""
        phase = 0
        while outgoing:
            for user, data in outgoing.items():
                try:
                    answer = self.clients[user].receive(data)
                    if isinstance(answer, Task):
                        update = self.population.train(user, self._model(user, answer, behaviour), answer.recipe)
                        weight = self.population.weights.get(user, 1)
                        answer = self.clients[user].seal(answer, update, weight=weight)
                except PeerError as refusal:
                    transcript.refusals[user] = str(refusal)
                    continue
                if answer is not None and not (user in behaviour.lost and phase == self.protocol.upload_phase):
                    transcript.take(server, user, answer, self.rules.quantiser)
            outgoing, phase = server.advance(), phase + 1


class UnsealedDevices(Devices):
    """Users in rounds of SecAgg, SecAgg+ or LightSecAgg as published, whatever batches the server chooses by.

    These protocols add vectors and know of no model: it is sent beside them, and users do not compare theirs.
    (Coterie's own unsealed rounds sign the model too. That stops another model for one user, and nothing else.)
    """

    sealed = False

    def __init__(self, population: DevicePopulation, protocol: InnerProtocol) -> None:
        super().__init__(population, protocol)
        configuration = population.configuration(protocol)
        self.clients = {
            user: UnsealedClient(user, key, configuration, self._is_real) for user, key in self._keys.items()
        }

    def _model(self, user: str, task: Task, behaviour: ServerBehaviour) -> bytes:
        del task
        return behaviour.models.get(user, behaviour.model)

    def sum(self, behaviour: ServerBehaviour) -> Sum:
        """Run one round; every user answers it, since nothing in it contradicts what it knows."""
        rules = replace(self.rules, quantiser=behaviour.quantiser or self.rules.quantiser)
        asked = {user: key for user, key in self._identities.items() if user not in behaviour.left_out}
        terms = Terms(b"", self.population.dimension, min_included=self.protocol.least_included([1], 1))
        server = unsealed_round(rules, asked, self._rounds, terms)
        recipes = {
            user: encode(unsealed_call(replace(rules, recipe=recipe), self._rounds, terms))
            for user, recipe in behaviour.recipes.items()
            if user in asked
        }
        calls = {**server.start(), **recipes}
        with self._round(server) as transcript:
            self._exchange(server, calls, behaviour, transcript)
            return server.finish().sum


class SealedDevices(Devices):
    """Users in sealed batches, against a server that takes every liberty which messages leave it."""

    sealed = True
    clients: Mapping[str, SealedClient]

    def __init__(self, population: DevicePopulation, protocol: InnerProtocol) -> None:
        super().__init__(population, protocol)
        configuration = population.configuration(protocol)
        self.clients = {
            user: SealedClient(Membership(user, key, configuration, self._is_real, MemoryStore()))
            for user, key in self._keys.items()
        }
        self._charters = self._found_batches(self.rules)

    def _found_batches(self, rules: BatchRules) -> dict[str, Charter]:
        """Found all batches, or their successors; return every user's charter."""
        members = [[self.clients[user] for user in batch] for batch in self.population.batches]
        charters = [found_batch(rules, batch, first=self._rounds) for batch in members]
        return {client.user: charter for batch, charter in zip(members, charters, strict=True) for client in batch}

    def sum(self, behaviour: ServerBehaviour) -> Sum:
        """Run one round as far as the devices go along, and add up what came, whatever the check words say."""
        if behaviour.quantiser is not None and behaviour.quantiser != self.rules.quantiser:
            # No message of a round names a quantiser: only a later charter can bring another.
            rules = replace(self.rules, quantiser=behaviour.quantiser)
            self._charters, self.rules = self._found_batches(rules), rules
        calls = {
            user: encode(round_call(charter, self._rounds, self._terms_of(user, behaviour)))
            for user, charter in self._charters.items()
            if user not in behaviour.left_out
        }
        server = self.protocol.server_round(
            self._groups(behaviour), self._setting(self._terms(behaviour.model)), 1
        )
        with self._round(server) as transcript:
            if behaviour.models and isinstance(server, AgreedRound):
                raise PeerError(self._shown_roster(calls, behaviour))
            self._exchange(server, calls, behaviour, transcript)
            self._demand_vectors(calls.keys() - behaviour.lost, transcript)
            return self._open_sum(server, transcript)

    def _terms(self, model: bytes, configuration: bytes = b"") -> Terms:
        sizes = [len(batch) for batch in self.population.batches]
        least = self.protocol.least_included(sizes, self.rules.privacy)
        return Terms(model, self.population.dimension, min_included=least, configuration=configuration)

    def _terms_of(self, user: str, behaviour: ServerBehaviour) -> Terms:
        """Return the terms that a user is shown."""
        return self._terms(behaviour.models.get(user, behaviour.model), behaviour.recipes.get(user, b""))

    def _setting(self, terms: Terms) -> RoundSetting:
        rules = self.rules
        return RoundSetting("sealed", rules.inner, SCOPE, self._rounds, terms, rules.quantiser, rules.parameters)

    def _groups(self, behaviour: ServerBehaviour) -> list[Group]:
        """Return who is in a sum together: batches; or everyone alone, for a server that loses users on purpose.

        Such a server proposes to include what is left of a batch, as it would without a seal.
        """
        alone = behaviour.lost and self.protocol.phases > 1
        return [
            Group(charter.digest, charter.privacy, {user: charter.identities[user] for user in users}, b"")
            for batch in self.population.batches
            for charter in [self._charters[batch[0]]]
            for users in ([[user] for user in batch] if alone else [batch])
        ]

    def _shown_roster(self, calls: Outgoing, behaviour: ServerBehaviour) -> str:
        """Show everyone one roster of users with different models; return the first refusal.

        The server's own machine would not make such a roster: who has another model signed for another round.
        """
        lines, refusals = [], []
        for user, call in calls.items():
            task = self.clients[user].receive(call)
            assert isinstance(task, Task)  # noqa: S101 - the answer to a call
            sent = self.clients[user].seal(task, self.population.train(user, task.terms.model, task.recipe))
            message, _ = messages_from_client.decode(sent)
            assert isinstance(message, Advertisement)  # noqa: S101 - the first message of these protocols
            keys = (message.mask_key, message.share_key, message.signature)
            lines.append(RosterLine(user, self._identities[user], *keys))
        roster = tuple(sorted(lines, key=lambda line: line.user.encode()))
        for user in calls:
            context = self._setting(self._terms_of(user, behaviour)).context
            try:
                self.clients[user].receive(encode(RosterCall(SCOPE, context, roster)))
            except PeerError as refusal:
                refusals.append(str(refusal))
        return refusals[0]

    def _demand_vectors(self, expected: Iterable[str], transcript: Transcript) -> None:
        """Raise the refusal of a user whose vector is not there."""
        for user in sorted(frozenset(expected).difference(transcript.vectors)):
            withheld = f"{user} sends no vector: not all of its batch are in the round"
            raise PeerError(transcript.refusals.get(user, withheld))

    def _open_sum(self, server: ServerRound, transcript: Transcript) -> Sum:
        """Add up all vectors, batch by batch in `open`, and take off what the users let the server take off."""
        if isinstance(server, AgreedRound):
            total = server._uploads.total.copy()  # noqa: SLF001 - it looks at what its own machine would discard
            server._remove_masks(total)  # noqa: SLF001
            return self._read(total, len(transcript.vectors))
        parts = []
        for batch in self.population.batches:
            vectors = [transcript.vectors[user] for user in batch if user in transcript.vectors]
            total = np.zeros_like(vectors[0])
            for words in vectors:
                self.rules.quantiser.ring.add_into(total, words)
            parts.append(self._read(total, len(vectors)))
        return Sum(np.sum([part.values for part in parts], axis=0), sum(part.weight for part in parts))

    def _read(self, total: Words, users: int) -> Sum:
        """Return what a sum means, or would mean if masks had cancelled in it and everyone had weight 1."""
        quantiser = self.rules.quantiser
        try:
            return dequantise(total, quantiser, users)
        except PeerError:
            words = total[: -quantiser.extra_words].astype(np.float64)
            return Sum(words * quantiser.step - users * quantiser.clip, users)


# --- the attacks


class AttackOutcome(Enum):
    """How an attack ended."""

    RECOVERED = "recovered"
    NOISE = "noise"
    REFUSED = "refused"


@dataclass(frozen=True, eq=False)
class DeviationResult:
    """What one attack by a deviating server got, in one inner protocol, with or without the seal."""

    attack: str
    protocol: str
    sealed: bool
    outcome: AttackOutcome
    error: float | None
    """‖estimate - update‖² / ‖update‖² (eq:recon_error); none if there is no estimate."""
    correlation: float | None
    """Between estimate and update. The best multiple of the estimate has the error 1 - correlation²."""
    reason: str
    """Why the server got what it got: a device's own words where it refused."""
    estimate: FloatArray | None = field(repr=False)
    account: tuple[tuple[str, ...], ...] = field(repr=False)
    """The sums of users that the server's own account of its rounds (`exposure`) admits to."""


class Deviation(ABC):
    """One way to break the rules in order to get a user's update."""

    name: ClassVar[str]
    """What the server does, as the end of "a server that …"."""
    loophole: ClassVar[str]
    """Why that gives the update where nothing forbids it."""

    def population(self, population: DevicePopulation, target: str) -> DevicePopulation:
        """Return the population that it is tried on: most take any."""
        del target
        return population

    @abstractmethod
    def behaviours(self, devices: Devices, target: str) -> tuple[ServerBehaviour, ...]:
        """Return what the server does, round by round: one whose sum is the update, or two that differ in it."""

    def estimate(self, devices: Devices, target: str) -> FloatArray:
        """Return the target's update as far as it can be had; a PeerError is a device's refusal."""
        sums = [devices.sum(behaviour) for behaviour in self.behaviours(devices, target)]
        if len(sums) == 1:
            return sums[0].values
        less, more = sorted(sums, key=lambda each: each.weight)
        # Σ w_i x_i / Σ w_i over what one sum has more than the other.
        return (more.values - less.values) / max(1, more.weight - less.weight)


@dataclass(frozen=True)
class PartOfBatch(Deviation):
    """Ask everyone in one round, and everyone but the target in the next: the difference is the target's update.

    This is disaggregation (`attacks.disaggregation`) with the two rounds that serve it best.
    """

    name: ClassVar[str] = "asks part of a batch"
    loophole: ClassVar[str] = "the two sums differ in one user"

    def behaviours(self, devices: Devices, target: str) -> tuple[ServerBehaviour, ...]:
        """Return a round with everyone, and one without the target."""
        honest = ServerBehaviour(devices.population.model)
        return honest, replace(honest, left_out=frozenset({target}))


@dataclass(frozen=True)
class LosingUsers(Deviation):
    """Ask everyone twice, and pretend the second time that the target was lost after it had sent its vector."""

    name: ClassVar[str] = "loses a user on purpose"
    loophole: ClassVar[str] = "the sum of whoever is left is opened, and the two sums differ in one user"

    def behaviours(self, devices: Devices, target: str) -> tuple[ServerBehaviour, ...]:
        """Return a round with everyone, and one that loses the target."""
        honest = ServerBehaviour(devices.population.model)
        return honest, replace(honest, lost=frozenset({target}))


@dataclass(frozen=True)
class OtherModel(Deviation):
    """Show the target the model, and everyone else one that gives a zero update: one round is enough.

    The idea is that of Pasquini et al. (2022). A model of which training overflows does it for any architecture,
    since an update that is not finite counts as zero.
    """

    silencing: bytes
    """The model with which nobody's update tells anything."""
    name: ClassVar[str] = "shows one user another model"
    loophole: ClassVar[str] = "the others' updates are zero, so the sum is one user's"

    def behaviours(self, devices: Devices, target: str) -> tuple[ServerBehaviour, ...]:
        """Return a round in which all but the target are sent the silencing model."""
        others = frozenset(devices.population.users) - {target}
        return (ServerBehaviour(devices.population.model, models=dict.fromkeys(others, self.silencing)),)


@dataclass(frozen=True)
class OtherRecipe(Deviation):
    """Let everyone but the target train with a learning rate of zero: one round is enough."""

    silencing: bytes
    """The training configuration with which nobody's update tells anything."""
    name: ClassVar[str] = "sends one user another learning rate"
    loophole: ClassVar[str] = "the others' updates are zero, so the sum is one user's"

    def behaviours(self, devices: Devices, target: str) -> tuple[ServerBehaviour, ...]:
        """Return a round in which all but the target are sent the silencing configuration."""
        others = frozenset(devices.population.users) - {target}
        return (ServerBehaviour(devices.population.model, recipes=dict.fromkeys(others, self.silencing)),)


@dataclass(frozen=True)
class OtherQuantiser(Deviation):
    """Move the largest weight between two rounds of everyone, both times above all weights but the target's.

    Both sums are over the same users: an account of who took part shows nothing at all.
    """

    name: ClassVar[str] = "changes the quantiser"
    loophole: ClassVar[str] = "one user's weight is capped and nobody else's, so the two sums differ in its update"
    heaviest: int = 90
    """The target's weight, its number of examples."""
    others: int = 40

    def population(self, population: DevicePopulation, target: str) -> DevicePopulation:
        """Let users weigh by their number of examples."""
        weights = {**dict.fromkeys(population.users, self.others), target: self.heaviest}
        return replace(population, weights=weights, weight_cap=self.heaviest)

    def behaviours(self, devices: Devices, target: str) -> tuple[ServerBehaviour, ...]:
        """Return a round that caps the target's weight just above the others', and one that does not cap it."""
        del target
        quantisers = (replace(devices.rules.quantiser, weight_cap=cap) for cap in (self.others + 1, self.heaviest))
        return tuple(ServerBehaviour(devices.population.model, quantiser=each) for each in quantisers)


def attempt(
    deviation: Deviation, population: DevicePopulation, target: str, kind: type[Devices], protocol: InnerProtocol
) -> DeviationResult:
    """Let a deviating server go for one user's update, among devices of their own, and measure what it got."""
    devices = kind(deviation.population(population, target), protocol)
    update = population.train(target, population.model, population.recipe)
    head = (deviation.name, protocol.name, devices.sealed)
    try:
        estimate = deviation.estimate(devices, target)
    except PeerError as refusal:
        return DeviationResult(*head, AttackOutcome.REFUSED, None, None, str(refusal), None, _account(devices))
    error = float(np.sum((estimate - update) ** 2) / np.sum(update**2))
    correlation = float(np.corrcoef(estimate, update)[0, 1])
    recovered = error < FOUND
    return DeviationResult(
        *head,
        AttackOutcome.RECOVERED if recovered else AttackOutcome.NOISE,
        error,
        correlation,
        deviation.loophole if recovered else "the masks of a batch's members did not cancel",
        estimate,
        _account(devices),
    )


def _account(devices: Devices) -> tuple[tuple[str, ...], ...]:
    """Return the learned sets of all rounds, and users of whom anything may be known each as a set of one."""
    learned = [users for exposure in devices.exposures for users in exposure.learned]
    return (*learned, *((user,) for exposure in devices.exposures for user in exposure.unknown))
