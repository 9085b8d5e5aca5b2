"""What the seal does not stop (docs/threat-model.md): attacks that succeed, so that nobody takes them for refused.

Each of them learns from sums over whole batches only, under one charter, and every device keeps every rule.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from coterie.secagg import (
    RING_16,
    RING_32,
    BatchRules,
    DeviceConfiguration,
    Quantiser,
    Seed,
    Terms,
    found_batch,
    read_recipe,
    run_round,
    sealed_round,
    simulated_client,
    write_recipe,
)
from coterie.secagg.crypto.masking import quantise_into
from coterie.secagg.server import round_call
from coterie.secagg.wire.framing import encode

SCOPE = "keyboard"
CLIP = 1.0
USERS = ("ana", "bob", "cas", "dan")
RULES = BatchRules(SCOPE, len(USERS), Quantiser(RING_32, CLIP, weight_cap=1, cohort=8), "open")
CONFIGURATION = DeviceConfiguration(scopes={SCOPE}, least_privacy=len(USERS), protocols={"open"})


class Federation:
    """One batch of honest devices, and a server that runs one round after another with models of its choice."""

    def __init__(self, train, recipe=b"{}"):
        rules = BatchRules(SCOPE, RULES.privacy, RULES.quantiser, RULES.inner, recipe=recipe)
        self.clients = {user: simulated_client(user, CONFIGURATION) for user in USERS}
        self.charter = found_batch(rules, self.clients.values())
        self.train = train
        self.rounds = 0

    def sum(self, model, step=0):
        """All that the server gets in a round: the sum over the whole batch."""
        dimension = len(self.train(USERS[0], model, read_recipe(self.charter.recipe), step))
        server = sealed_round([self.charter], self.rounds, Terms(model.tobytes(), dimension, step=step))
        result = run_round(server, self.clients, self._update)
        assert [set(part.users) for part in result.learned] == [set(USERS)]
        self.rounds += 1
        return result.sum.values

    def _update(self, user, task):
        """What an honest device does: train by the recipe on the model in the terms, and nothing else."""
        model = np.frombuffer(task.terms.model)
        return self.train(user, model, read_recipe(task.recipe), task.terms.step)


def largest_value(sum_at, smallest, largest):
    """Read the value of largest size among a batch's off sums of clip(scale·value), for scales of one's choice.

    Such a sum grows evenly with the scale until the value of largest size meets the clip, at scale = clip/|value|.
    """
    slope = sum_at(smallest) / smallest
    low, high = smallest, largest
    for _ in range(40):
        middle = np.sqrt(low * high)
        if abs(sum_at(middle) - slope * middle) < 1e-6:
            low = middle
        else:
            high = middle
    size = CLIP / high
    return size if sum_at(2 * high) < slope * 2 * high else -size


# --- a rescaled ReLU network -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """y = w₂·relu(W₁x) with 3 inputs and 2 hidden units, its loss ½(y - target)², and its gradient."""

    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, model):
        """The network with these parameters."""
        return cls(model[:6].reshape(2, 3), model[6:])

    def model(self):
        """Its parameters in one row."""
        return np.concatenate((self.first.ravel(), self.second))

    def rescaled(self, scale):
        """The same function: what leaves the first layer is scaled up, and the second layer takes it back."""
        return Network(self.first * scale, self.second / scale)

    def output(self, x):
        """What the network says of an example."""
        return self.second @ np.maximum(self.first @ x, 0)

    def gradient(self, x, target):
        """The loss's gradient, in the order of `model`."""
        before = self.first @ x
        hidden, error = np.maximum(before, 0), self.output(x) - target
        return np.concatenate((error * np.outer(self.second * (before > 0), x).ravel(), error * hidden))


def test_a_rescaled_network_reads_values_past_the_fixed_clip():
    """Scaling one layer up and the next down leaves a ReLU network as it is, and moves updates past the clip.

    Charter, quantiser, recipe and weights stay the same; only the model is another in each round. Some forty sums
    over the whole batch give one member's own value.
    """
    rng = np.random.default_rng(1)
    data = {user: (rng.uniform(0.1, 1, 3), rng.uniform(-1, 1)) for user in USERS}
    honest = Network(rng.uniform(0.1, 1, (2, 3)), rng.uniform(0.1, 1, 2))
    rate = 0.01

    def train(user, model, recipe, step):
        del recipe, step
        return -rate * Network.of(model).gradient(*data[user])

    federation = Federation(train)
    x, _ = data["ana"]
    assert honest.rescaled(50.0).output(x) == pytest.approx(honest.output(x))
    coordinate = 6  # of the second layer: its gradient grows with the scale
    own = {user: train(user, honest.model(), {}, 0)[coordinate] for user in USERS}
    sum_ = federation.sum(honest.model())[coordinate]
    assert sum_ == pytest.approx(sum(own.values()), abs=1e-7)
    read = largest_value(
        lambda scale: federation.sum(honest.rescaled(scale).model())[coordinate], smallest=1.0, largest=1e6
    )
    assert read == pytest.approx(max(own.values(), key=abs), rel=1e-3)


def test_a_schedule_is_a_sweep_that_the_charter_announces():
    """A schedule in the recipe moves the learning rate with the step, and a server may repeat one model meanwhile.

    What it could not do round by round it wrote into the charter. An owner who does not want that takes `schedule`
    out of the device's `recipe_keys`.
    """
    factor, steps = 1.05, 40
    schedule = [[at, factor] for at in range(1, steps)]
    recipe = write_recipe({"learning_rate": 0.1, "schedule": schedule})
    slopes = dict(zip(USERS, (0.9, -2.5, 0.7, 1.1), strict=True))

    def train(user, model, settings, step):
        del model
        rate = settings["learning_rate"] * np.prod([by for at, by in settings["schedule"] if at <= step])
        return np.array([rate * slopes[user]])

    federation = Federation(train, recipe)
    model = np.zeros(1)
    sums = [federation.sum(model, step)[0] for step in range(steps)]
    rates = 0.1 * factor ** np.arange(steps)
    bent = np.flatnonzero(abs(sums - sums[0] / rates[0] * rates) > 1e-3)[0]
    assert -CLIP / rates[bent] == pytest.approx(min(slopes.values()), rel=factor - 1)


# --- what repeats and what does not ------------------------------------------------------------------------


def test_a_change_of_one_members_data_is_the_difference_of_two_sums():
    """If one member's update moves while all others' repeat, two sums of the whole batch show by how much."""
    values = {user: np.full(5, 0.1 * number) for number, user in enumerate(USERS)}
    federation = Federation(lambda user, *_: values[user])
    before = federation.sum(np.zeros(1))
    change = np.array([0.0, 0.2, 0.0, -0.1, 0.0])
    values["cas"] = values["cas"] + change
    assert federation.sum(np.zeros(1)) - before == pytest.approx(change, abs=1e-7)


def test_rounding_drawn_anew_shows_the_values_within_a_level():
    """Sums whose rounding is drawn anew differ by chance, and how much they differ depends on single values.

    Equal terms give equal rounding, so a server changes a byte of the terms that does not matter. Each word is one
    of two levels; the mean of many sums gives the sum of the members' chances of the upper one, and the variance
    the sum of their squares. Of two members both chances follow, though not whose is which.
    """
    quantiser = Quantiser(RING_16, CLIP, weight_cap=1, cohort=64)
    chances = np.array([0.8, 0.35])
    repeats = 200_000
    total = np.zeros(repeats, dtype=np.int64)
    for number, chance in enumerate(chances):
        words = np.empty(repeats + quantiser.extra_words, dtype=np.uint16)
        value = np.full(repeats, (511 + chance) * quantiser.step - CLIP)
        quantise_into(words, value, 1, quantiser, Seed(bytes([number] * 32)))
        total += words[:repeats].astype(np.int64) - 511
    mean, variance = total.mean(), total.var()
    squares = mean - variance
    gap = np.sqrt(2 * squares - mean**2)
    assert [(mean + gap) / 2, (mean - gap) / 2] == pytest.approx(sorted(chances, reverse=True), abs=0.02)


def test_a_cloned_device_shows_the_difference_of_two_of_its_updates():
    """Two copies of one device's record seal one round twice, under the same masks: they cancel."""
    federation = Federation(lambda *_: np.zeros(3))
    client = federation.clients["ana"]
    store = client.membership.store
    copy = dict(store.records)
    call = encode(round_call(federation.charter, 0, Terms(b"model", 3)))
    sealed = []
    for update in (np.array([0.5, 0.0, -0.25]), np.array([0.25, 0.0, 0.25])):
        store.records.clear()
        store.records.update(copy)
        words = np.frombuffer(client.seal(client.receive(call), update)[-4 * (3 + 3) :], dtype="<u4")
        sealed.append(words[:3])
    shown = (sealed[0] - sealed[1]).astype(np.int32) * RULES.quantiser.step
    assert shown == pytest.approx([0.25, 0.0, -0.5], abs=1e-7)
