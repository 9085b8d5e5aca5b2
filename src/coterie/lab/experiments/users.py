"""The users of a run with their real cryptography: a device each, on the disk, that trains, seals and answers."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from coterie.errors import UsageError
from coterie.federation.aggregation import SealedAggregation, UnsealedAggregation, form_batches
from coterie.federation.coordinator import Aggregation
from coterie.federation.device_file import DeviceFile
from coterie.federation.ledger import Ledger
from coterie.files import writing
from coterie.lab.experiments.plain import TrainingNotes
from coterie.lab.experiments.setup import Setup
from coterie.secagg import (
    PROTOCOLS,
    BatchRules,
    Client,
    DeviceConfiguration,
    IdentityKey,
    Membership,
    Quantiser,
    SealedClient,
    Seed,
    Task,
    Terms,
    UnsealedClient,
)
from coterie.secagg.loopback import Arrival, Contribution, SimulatedUsers
from coterie.secagg.protocols.interface import RoundPhase
from coterie.values import IntArray

SCOPE = "experiment"


class SimulatedFederation:
    """Users with a device each, in a folder, whose keys the ledger knows."""

    def __init__(self, folder: Path, ledger: Ledger, setup: Setup) -> None:
        self._ledger, self._spec, self._world, self._trainer = ledger, setup.spec, setup.world, setup.trainer
        self._protocol = PROTOCOLS[self._spec.aggregation.protocol]
        self._privacy = 2 if ledger.plan is None else ledger.plan.privacy
        self._rules = self._batch_rules()
        self._number = {name: user for user, name in enumerate(ledger.names)}
        devices = {name: DeviceFile.open(_file(folder, user)) for name, user in self._number.items()}
        self._clients = {name: self._client(name, device) for name, device in devices.items()}

    def _client(self, name: str, device: DeviceFile) -> Client:
        identity = IdentityKey.from_bytes(device.identity)
        configuration = DeviceConfiguration(
            scopes=frozenset({SCOPE}), least_privacy=self._privacy, protocols=frozenset({self._protocol.name})
        )
        # A simulated user's rounding is a function of the seed, so that equal runs give equal bits.
        secret = Seed(self._world.rounding(self._number[name]).bytes(32))
        if self._spec.aggregation.sealed:
            member = Membership(
                user=name,
                identity=identity,
                configuration=configuration,
                verify_member=self._is_real,
                store=device,
                new_secret=lambda: secret,
            )
            return SealedClient(member)
        return UnsealedClient(name, identity, configuration, self._is_real, rounding_secret=secret)

    def _batch_rules(self) -> BatchRules:
        """Return what all charters have in common: the quantiser, and the training settings as their recipe."""
        spec, plan = self._spec, self._ledger.plan
        largest = 1 if plan is None else int(plan.sizes.max())
        cohort = self._protocol.cohort_bound(spec.most_asked(largest), largest)
        quantiser = Quantiser.in_ring_of(
            self._protocol.rings,
            spec.aggregation.clip,
            spec.largest_weight,
            cohort,
            word_bits=spec.aggregation.word_bits,
        )
        recipe = spec.training.recipe_bytes()
        return BatchRules(SCOPE, self._privacy, quantiser, self._protocol.name, recipe=recipe)

    def _is_real(self, user: str, identity: bytes) -> bool:
        return user in self._number and self._ledger.key_of(self._number[user]) == identity

    def sealed_rounds(self) -> IntArray:
        """Return the last round that each user's device has sealed; -1 if none, or if rounds are unsealed."""
        last = np.full(len(self._number), -1, dtype=np.int64)
        for name, client in self._clients.items():
            if isinstance(client, SealedClient):
                with client.membership.record(SCOPE) as record:
                    last[self._number[name]] = record.sealed_round
        return last

    def form_batches(self) -> None:
        """Form the batches that have no charter yet."""
        failed = form_batches(self._ledger, self._transport(0, TrainingNotes()), self._rules)
        if failed:
            batch, reason = next(iter(failed.items()))
            raise UsageError(f"batch {batch} could not be formed: {reason}")

    def aggregation(self, parameters: torch.Tensor, step: int, notes: TrainingNotes) -> Aggregation:
        """Return the round of one step, over the model that it starts from."""
        transport, terms = self._transport(step, notes), self._terms(parameters, step)
        if self._spec.aggregation.sealed:
            return SealedAggregation(self._ledger, transport, terms, self._protocol.name)
        return UnsealedAggregation(self._ledger, transport, terms, self._rules)

    def _terms(self, parameters: torch.Tensor, step: int) -> Terms:
        plan = self._ledger.plan
        sealed = self._spec.aggregation.sealed and plan is not None
        sizes, privacy = (plan.sizes.tolist(), plan.privacy) if sealed and plan is not None else ([1], 1)
        return Terms(
            model=parameters.cpu().numpy().tobytes(),
            dimension=len(parameters),
            min_included=self._protocol.least_included(sizes, privacy),
            step=step,
        )

    def _transport(self, step: int, notes: TrainingNotes) -> SimulatedUsers:
        lost, at = self._world.lost_users(step), self._world.lost_at(step, self._protocol.upload_phase + 1)

        def network(user: str, moment: RoundPhase, direction: str) -> Arrival:
            number = self._number[user]
            gone = moment.round is not None and lost[number] and moment.phase >= at[number]
            # Lost before the message comes, or after it came: both happen, by the parity of the user and the step.
            before = moment.phase > at[number] or (number + step) % 2 == 0
            return Arrival.LOST if gone and (before or direction == "from") else Arrival.IN_TIME

        def train(tasks: Mapping[str, Task]) -> dict[str, Contribution]:
            # Devices train on what they hashed: the terms and the recipe of their own task.
            task = next(iter(tasks.values()))
            if task.recipe != self._rules.recipe:
                raise UsageError(f"the batches train by {task.recipe!r}, this run by {self._rules.recipe!r}")
            parameters = torch.frombuffer(bytearray(task.terms.model), dtype=torch.float32)
            users = np.array([self._number[user] for user in tasks])
            updates = self._trainer.updates(parameters, users, task.terms.step)
            notes.add(updates)
            vectors = updates.vectors.cpu().numpy()
            weights = updates.weights.tolist()
            return {user: Contribution(vectors[row], weights[row]) for row, user in enumerate(tasks)}

        return SimulatedUsers(self._clients, train, network)


def make_devices(folder: Path, users: int) -> list[bytes]:
    """Make a device for every user; return their public identity keys."""
    with writing(folder):
        folder.mkdir()
    keys = []
    for user in range(users):
        identity = IdentityKey.generate()
        DeviceFile.create(_file(folder, user), identity.to_bytes()).close()
        keys.append(identity.public)
    return keys


def _file(folder: Path, user: int) -> Path:
    return folder / f"{user:06d}.sqlite"
