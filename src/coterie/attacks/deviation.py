"""A server that breaks the rules to get one user's update: each attack, and what it got (docs/attacks.md).

Over many rounds an honest server learns what its cohorts' differences show. A deviating one makes the difference
that it wants in a round or two. Without a seal every one of these attacks gives the update; against the seal each
gives noise, or a device's refusal.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

import numpy as np

from coterie.attacks.devices import DevicePopulation, Devices, ServerBehaviour
from coterie.attacks.score import FOUND
from coterie.errors import PeerError
from coterie.secagg import InnerProtocol
from coterie.values import FloatArray


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
