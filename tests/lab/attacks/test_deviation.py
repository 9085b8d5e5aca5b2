"""A server that breaks the rules: without a seal it gets the update it wants, against the seal it never does."""

from functools import cache

import numpy as np
import pytest
import torch

from coterie.errors import PeerError, TooFewUsersError
from coterie.lab.attacks.deviation import (
    AttackOutcome,
    DevicePopulation,
    LosingUsers,
    OtherModel,
    OtherQuantiser,
    OtherRecipe,
    PartOfBatch,
    SealedDevices,
    ServerBehaviour,
    UnsealedDevices,
    attempt,
)
from coterie.lab.attacks.disaggregation import LeastSquares, disaggregation_errors, estimated_updates
from coterie.lab.attacks.view import ServerView
from coterie.leakage import StrongLevel
from coterie.secagg import (
    PROTOCOLS,
    Terms,
    found_batch,
    read_recipe,
    run_round,
    sealed_round,
    simulated_client,
    unsealed_round,
    write_recipe,
)
from coterie.secagg.server import unsealed_call
from coterie.secagg.wire.framing import encode

T, DIMENSION = 4, 400
NAMES = [f"user-{number:02d}" for number in range(12)]
BATCHES = tuple(tuple(NAMES[start : start + T]) for start in range(0, len(NAMES), T))
TARGET = NAMES[5]
MODEL, CRAFTED = b"model", b"crafted"
RECIPE, SILENT = (write_recipe({"learning_rate": rate}) for rate in (1.0, 0.0))
UPDATES = dict(zip(NAMES, np.random.default_rng(0).normal(0, 0.01, (len(NAMES), DIMENSION)), strict=True))

ATTACKS = [PartOfBatch(), LosingUsers(), OtherModel(CRAFTED), OtherRecipe(SILENT), OtherQuantiser()]
UNSEALED = [protocol for protocol in PROTOCOLS.values() if protocol.runs_unsealed]
BY_NAME = {"ids": lambda value: value.name}

WITHHELD = "user-04 sends no vector: not all of its batch are in the round"
NOT_SIGNED = "signature of 'user-05' for 'advertise' is forged, or made for something else"
FIXED = "changes the quantiser that this device sealed under: weight cap 90 in place of 41"
CHARTERS = "sent a training configuration with the round; this device takes the charter's"
REFUSALS = {"open": {}, "secagg": {PartOfBatch: WITHHELD, OtherModel: NOT_SIGNED}}
REFUSALS["secagg+"] = REFUSALS["lightsecagg"] = REFUSALS["secagg"]


def train(user, model, recipe):
    """What an honest device computes; of the crafted model training overflows."""
    if model == CRAFTED:
        return np.full(DIMENSION, np.nan)
    return read_recipe(recipe)["learning_rate"] * UPDATES[user]


POPULATION = DevicePopulation(BATCHES, train, MODEL, DIMENSION, RECIPE)


@cache
def result_of(attack, kind, protocol):
    """What one attack got; several tests look at it."""
    return attempt(attack, POPULATION, TARGET, kind, protocol)


def level(account):
    """The strong privacy level of the sums in an account."""
    strong = StrongLevel(len(NAMES))
    for users in account:
        strong.add([NAMES.index(user) for user in users])
    return strong.level


@pytest.mark.parametrize("protocol", UNSEALED, **BY_NAME)
@pytest.mark.parametrize("attack", ATTACKS, **BY_NAME)
def test_without_a_seal_every_deviation_gives_the_update(attack, protocol):
    """The target's update comes out, as exactly as its words hold it."""
    result = result_of(attack, UnsealedDevices, protocol)
    assert (result.outcome, result.reason) == (AttackOutcome.RECOVERED, attack.loophole)
    assert result.error < 1e-10
    assert result.estimate == pytest.approx(UPDATES[TARGET], abs=1e-6)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), **BY_NAME)
@pytest.mark.parametrize("attack", ATTACKS, **BY_NAME)
def test_against_the_seal_every_deviation_gives_noise_or_a_refusal(attack, protocol):
    """The same attack gives nothing that goes with the update, or a device refuses it and says why."""
    result = result_of(attack, SealedDevices, protocol)
    refusals = {OtherRecipe: CHARTERS, OtherQuantiser: FIXED, **REFUSALS[protocol.name]}
    if type(attack) in refusals:
        assert (result.outcome, result.estimate) == (AttackOutcome.REFUSED, None)
        assert refusals[type(attack)] in result.reason
    else:
        assert result.outcome is AttackOutcome.NOISE
        assert result.error > 1  # worse than to guess that the update is zero
        assert abs(result.correlation) < 5 / np.sqrt(DIMENSION)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), **BY_NAME)
def test_a_server_that_keeps_to_the_rules_gets_its_sum(protocol):
    """The same devices and the same way of adding up give the right sum where nobody deviates: noise is no bug."""
    kinds = [SealedDevices, *([UnsealedDevices] if protocol.runs_unsealed else [])]
    for kind in kinds:
        total = kind(POPULATION, protocol).sum(ServerBehaviour(MODEL))
        assert total.values == pytest.approx(np.sum(list(UPDATES.values()), axis=0), abs=1e-6)
        assert total.weight == len(NAMES)


@pytest.mark.parametrize("attack", [PartOfBatch(), LosingUsers()], **BY_NAME)
def test_a_servers_own_account_is_never_above_the_truth(attack):
    """An update that came out is one that the account of the rounds admits to; against the seal T stays."""
    for protocol in UNSEALED:
        result = result_of(attack, UnsealedDevices, protocol)
        assert (result.outcome, level(result.account)) == (AttackOutcome.RECOVERED, 1)
    for protocol in PROTOCOLS.values():
        result = result_of(attack, SealedDevices, protocol)
        assert level(result.account) <= T
        if isinstance(attack, PartOfBatch):
            assert level(result.account) == T


@pytest.mark.parametrize("attack", [OtherModel(CRAFTED), OtherRecipe(SILENT), OtherQuantiser()], **BY_NAME)
def test_no_account_of_who_took_part_sees_what_was_changed_around_it(attack):
    """Without a seal an update comes out of sums over everybody: levels count users, not what they were sent."""
    result = result_of(attack, UnsealedDevices, PROTOCOLS["secagg+"])
    assert (result.outcome, level(result.account)) == (AttackOutcome.RECOVERED, len(NAMES))


def test_losing_a_user_is_refused_by_its_batch_and_gives_noise_all_the_same():
    """Enough others sign and open: what keeps the sum closed is the seal, and not that somebody objects."""
    devices = SealedDevices(POPULATION, PROTOCOLS["secagg"])
    objections = []
    for user in BATCHES[1]:
        receive = devices.clients[user].receive

        def listening(data, receive=receive):
            try:
                return receive(data)
            except PeerError as error:
                objections.append(str(error))
                raise

        devices.clients[user].receive = listening
    got = devices.sum(ServerBehaviour(MODEL, lost=frozenset({TARGET})))
    assert len(objections) == T
    assert all("includes a part of the batch" in objection for objection in objections)
    rest = np.sum([UPDATES[user] for user in NAMES if user != TARGET], axis=0)
    assert abs(np.corrcoef(got.values, rest)[0, 1]) < 5 / np.sqrt(DIMENSION)


def test_unsealed_rounds_that_sign_the_model_refuse_another_one():
    """Coterie's own unsealed rounds have the model in what users sign, which published protocols do not."""
    devices = UnsealedDevices(POPULATION, PROTOCOLS["secagg+"])
    identities = devices._identities  # noqa: SLF001 - what the server knows, too
    honest, crafted = (Terms(model, DIMENSION, min_included=2) for model in (MODEL, CRAFTED))
    server = unsealed_round(devices.rules, identities, 0, honest)
    calls = server.start() | {TARGET: encode(unsealed_call(devices.rules, 0, crafted))}
    answers = {
        user: devices.clients[user].seal(devices.clients[user].receive(call), UPDATES[user])
        for user, call in calls.items()
    }
    with pytest.raises(PeerError, match=f"{TARGET} answered for another round"):
        server.receive(TARGET, answers[TARGET])


def test_invented_users_open_the_seal_where_nobody_checks_who_is_real():
    """The limit of all this: a batch of one user and T - 1 that the server made up is no batch.

    Devices that look their members up refuse it; those that trust the server for identities do not.
    """
    configuration = POPULATION.configuration(PROTOCOLS["open"])
    rules = POPULATION.rules(PROTOCOLS["open"])
    invented = [simulated_client(f"sybil-{number}", configuration) for number in range(T - 1)]
    known = SealedDevices(POPULATION, PROTOCOLS["open"]).clients[TARGET]
    with pytest.raises(PeerError, match="verify_member refused 'sybil-0'"):
        found_batch(rules, [known, *invented])
    trusting = simulated_client(TARGET, configuration)
    charter = found_batch(rules, [trusting, *invented])
    result = run_round(
        sealed_round([charter], 0, Terms(MODEL, DIMENSION)),
        {client.user: client for client in (trusting, *invented)},
        lambda user, task: UPDATES.get(user, np.zeros(DIMENSION)),
    )
    assert result.sum.values == pytest.approx(UPDATES[TARGET], abs=1e-6)


class TestManyRounds:
    """A server that asks whom it likes, round after round, and takes all sums that it can open apart."""

    ROUNDS = 24

    def view(self, rows, sums):
        """What such a server has in the end; it sends one model again and again."""
        means = [torch.from_numpy(total / len(users)) for users, total in zip(rows, sums, strict=True)]
        return ServerView.of(len(NAMES), rows, means, torch.zeros(DIMENSION, dtype=torch.float64))

    def truth(self):
        return torch.from_numpy(np.array(list(UPDATES.values())))

    def test_without_a_seal_everyone_is_found(self):
        """Parts of batches, at random: all updates come out."""
        devices, rng = UnsealedDevices(POPULATION, PROTOCOLS["secagg+"]), np.random.default_rng(1)
        rows, sums = [], []
        for _ in range(self.ROUNDS):
            left_out = frozenset(name for name in NAMES if rng.random() < 0.25)
            sums.append(devices.sum(ServerBehaviour(MODEL, left_out=left_out)).values)
            rows.append([NAMES.index(name) for name in NAMES if name not in left_out])
        errors = disaggregation_errors(self.view(rows, sums), LeastSquares(), self.truth())
        assert len(errors.found_users) == len(NAMES)
        assert errors.errors.max() < 1e-9

    @pytest.mark.parametrize("inner", ["open", "secagg+"])
    def test_against_the_seal_nobody_is_found(self, inner):
        """The same rounds give sums of whole batches only, and everyone's estimate is the batch's mean."""
        protocol, rng = PROTOCOLS[inner], np.random.default_rng(1)
        devices = SealedDevices(POPULATION, protocol)
        charters = [devices._charters[batch[0]] for batch in BATCHES]  # noqa: SLF001 - the server made them
        rows, sums = [], []
        terms = Terms(MODEL, DIMENSION, min_included=protocol.least_included([T], T))
        for round_ in range(self.ROUNDS):
            left_out = frozenset(name for name in NAMES if rng.random() < 0.06)
            server = sealed_round(charters, round_, terms)
            try:
                result = run_round(
                    server,
                    devices.clients,
                    lambda user, task: UPDATES[user],
                    loses=lambda user, phase, way, left_out=left_out: phase == 0 and user in left_out,
                )
            except TooFewUsersError:
                continue
            rows += [[NAMES.index(user) for user in part.users] for part in result.learned]
            sums += [part.sum.values for part in result.learned]
        view = self.view(rows, sums)
        errors = disaggregation_errors(view, LeastSquares(), self.truth())
        assert len(errors.found_users) == 0
        assert errors.errors.min() > 0.5
        means = self.truth().reshape(len(BATCHES), T, DIMENSION).mean(dim=1)
        estimates = estimated_updates(view, LeastSquares())
        assert torch.allclose(estimates.double(), means.repeat_interleave(T, dim=0), atol=1e-6)
