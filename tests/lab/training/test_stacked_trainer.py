"""Clients trained together end where each would have ended alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from coterie import UsageError
from coterie.lab.training.models import ParameterLayout, client_keys, flatten, make_model, prepare_model
from coterie.lab.training.settings import LocalTraining
from coterie.lab.training.stacked_model import LayerStack, MappedStack, convolve, fold_grad, group_norm, stack_of
from coterie.lab.training.stacked_trainer import (
    StackedTrainer,
    TrainingState,
    check_compiled,
    make_trainer,
    timetable,
)
from coterie.lab.training.trainer import SeparateTrainer
from support.training.clients import OwnModel, small_network, user_data_of

MODELS = {"layers": small_network, "vmap": OwnModel}

local_settings = st.builds(
    LocalTraining,
    epochs=st.integers(1, 2),
    minibatch=st.integers(1, 6),
    learning_rate=st.sampled_from([0.01, 0.1]),
    schedule=st.sampled_from([(), ((1, 0.5), (3, 0.5))]),
    momentum=st.sampled_from([0.0, 0.6]),
    weight_decay=st.sampled_from([0.0, 0.05]),
    shuffled=st.booleans(),
    dropout=st.booleans(),
    weighting=st.sampled_from(["equal", "examples"]),
)


def assert_close(first, second, parameters):
    """Updates agree to float32 rounding, their own and that of the parameters that they are differences of."""
    assert float((first - second).norm()) <= 2e-5 * float(second.norm()) + 1e-6 * float(parameters.norm())


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=25, deadline=None)
@given(local=local_settings, chunk=st.integers(1, 4), round_=st.integers(0, 4), data=st.data())
def test_stacked_clients_end_where_they_would_alone(name, local, chunk, round_, data):
    """For every option, any amounts of data and any chunks: the updates and losses of the twin."""
    sizes = data.draw(st.lists(st.integers(1, 14), min_size=2, max_size=4))
    users = data.draw(st.permutations(range(len(sizes))))[: data.draw(st.integers(1, len(sizes)))]
    user_data, model = user_data_of(sizes), MODELS[name]()
    parameters = flatten(model)
    alone = SeparateTrainer(model, user_data, local, seed=7)
    stacked = StackedTrainer(model, user_data, local, cohort=3, seed=7, chunk=chunk)
    expected = alone.updates(parameters, users, round_)
    together = stacked.updates(parameters, users, round_)
    assert_close(together.vectors, expected.vectors, parameters)
    assert together.losses == pytest.approx(expected.losses, rel=1e-4)
    assert together.weights.tolist() == [sizes[u] if local.weighting == "examples" else 1 for u in users]
    shares = torch.tensor(together.weights / together.weights.sum(), dtype=torch.float32)
    for trainer in (alone, stacked):
        mean = trainer.mean(parameters, users, round_)
        assert_close(mean.vector, shares @ expected.vectors, parameters)
        assert mean.losses == pytest.approx(expected.losses, rel=1e-4)


@pytest.mark.parametrize("name", ["mnist-cnn", "lenet", "vgg-11", "small-cnn"])
def test_the_experiments_models_are_stacked_by_layers(name):
    """Each of them is computed by the stacked layers, and their outputs are the module's own."""
    model = prepare_model(make_model(name, 10, 1))
    shape = torch.Size((1, 28, 28) if name.endswith("cnn") else (3, 32, 32))
    layout = ParameterLayout.of(model)
    stack = stack_of(model, shape, layout)
    assert isinstance(stack, LayerStack)
    model.eval()
    images = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0))
    vectors = torch.stack([flatten(model), flatten(make_model(name, 10, 2))])
    with torch.no_grad():
        outputs = stack.outputs(stack.pack(vectors), images, torch.zeros(2, dtype=torch.int64))
        assert torch.allclose(outputs[0], model(images[0]), atol=1e-4)
    assert torch.equal(stack.unpack(stack.pack(vectors)), vectors)


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    size=st.tuples(st.integers(4, 9), st.integers(4, 9)),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_convolutions_and_their_gradients_are_torchs(kernel, stride, padding, size, channels):
    """For every geometry, outputs and both gradients are those of torch's own conv2d in double precision."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, channels[0], *size, generator=draw, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(
        2, channels[1], channels[0], *kernel, generator=draw, dtype=torch.float64, requires_grad=True
    )
    packed = weights.permute(0, 1, 3, 4, 2).flatten(2)
    ours = convolve(images.permute(0, 1, 3, 4, 2), packed, kernel, stride, padding).permute(0, 1, 4, 2, 3)
    theirs = torch.stack([
        functional.conv2d(image, weight, stride=stride, padding=padding)
        for image, weight in zip(images, weights, strict=True)
    ])  # fmt: skip
    slope = torch.randn(theirs.shape, generator=draw, dtype=torch.float64)
    assert torch.allclose(ours, theirs)
    for mine, other in zip(
        torch.autograd.grad(ours, (images, weights), slope),
        torch.autograd.grad(theirs, (images, weights), slope),
        strict=True,
    ):
        assert torch.allclose(mine, other)


@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    size=st.tuples(st.integers(4, 9), st.integers(4, 9)),
)
def test_patches_add_up_to_the_gradient_of_images(kernel, padding, size):
    """What a compiler is given for the gradient of images is the gradient that the other way has."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, *size, 2, generator=draw, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 5, kernel[0] * kernel[1] * 2, generator=draw, dtype=torch.float64)
    outputs = convolve(images, weights, kernel, (1, 1), padding)
    grad = torch.randn(outputs.shape, generator=draw, dtype=torch.float64)
    (expected,) = torch.autograd.grad(outputs, images, grad)
    assert torch.allclose(fold_grad(grad, weights, kernel, padding, images.shape), expected)


def test_values_in_bfloat16_are_normalised_in_float32():
    """Outputs and gradients are those of float32, rounded once; parameters' gradients are not rounded at all."""
    draw = torch.Generator().manual_seed(0)
    exact = torch.randn(2, 3, 4, 4, 8, generator=draw).bfloat16()
    weights, bias = (torch.randn(2, 8, generator=draw).requires_grad_() for _ in range(2))
    grad = torch.randn(exact.shape, generator=draw).bfloat16()
    results = []
    for dtype in (torch.bfloat16, torch.float32):
        values = exact.to(dtype).requires_grad_()
        outputs = group_norm(values, 2, weights, bias, 1e-5)
        assert outputs.dtype == dtype
        results.append((outputs, *torch.autograd.grad(outputs, (values, weights, bias), grad.to(dtype))))
    for rounded, whole in zip(*results, strict=True):
        assert torch.equal(rounded, whole.to(rounded.dtype))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(128, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding_mode="circular", padding=1), nn.Flatten(), nn.Linear(128, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(4, ceil_mode=True), nn.Flatten(), nn.Linear(8, 3)),
        nn.Sequential(nn.Linear(8, 8), nn.Flatten(), nn.Linear(64, 3)),
    ],
)
def test_layers_that_have_no_stacked_form_go_through_vmap(model):
    """A sequence with one layer or option that the stacked layers do not know is trained as right as any."""
    user_data = user_data_of([5, 3])
    local = LocalTraining(minibatch=2)
    trainer = StackedTrainer(model, user_data, local, cohort=2)
    assert isinstance(trainer.stack, MappedStack)
    parameters = flatten(model)
    expected = SeparateTrainer(model, user_data, local).updates(parameters, [0, 1], 0)
    assert_close(trainer.updates(parameters, [0, 1], 0).vectors, expected.vectors, parameters)


def test_a_layer_with_a_hook_and_shared_layers_go_through_vmap():
    """What a hook does, and parameters that two layers share, count as in the module itself."""
    hooked = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    hooked[1].register_forward_hook(lambda module, given, output: output * 2)
    same = nn.Linear(64, 64)
    shared = nn.Sequential(nn.Flatten(), same, nn.ReLU(), same, nn.Linear(64, 3))
    user_data, local = user_data_of([5, 3]), LocalTraining(minibatch=2, learning_rate=0.02)
    for model in (hooked, shared):
        parameters = flatten(model)
        trainer = StackedTrainer(model, user_data, local, cohort=2)
        assert isinstance(trainer.stack, MappedStack)
        expected = SeparateTrainer(model, user_data, local).updates(parameters, [0, 1], 0)
        assert_close(trainer.updates(parameters, [0, 1], 0).vectors, expected.vectors, parameters)


def test_a_model_with_randomness_of_its_own_cannot_be_stacked():
    """Random numbers that are drawn in the model's code are refused, with what to do instead."""

    class Noisy(nn.Linear):
        def forward(self, images):
            return super().forward(functional.dropout(images.flatten(1)))

    trainer = StackedTrainer(Noisy(64, 3), user_data_of([4, 4]), LocalTraining(), cohort=2)
    with pytest.raises(UsageError, match=r"torch\.nn\.Dropout"):
        trainer.mean(flatten(trainer.model), [0, 1], 0)


def test_only_stacked_layers_are_compiled():
    """Where compiled kernels are asked for, a model that goes through vmap is refused at once."""
    with pytest.raises(UsageError, match="train this model without"):
        StackedTrainer(OwnModel(), user_data_of([4, 4]), LocalTraining(), cohort=2, compiled=True)


def test_a_step_beyond_the_round_begins_anew():
    """Captures take steps ahead of time: more than a round has do no harm, since every round is loaded anew."""
    user_data, model = user_data_of([3, 2]), small_network()
    trainer = StackedTrainer(model, user_data, LocalTraining(), cohort=2)
    steps = TrainingState(trainer.stack, user_data, trainer.settings, like=flatten(model), clients=2, most=1)
    for _ in range(4):
        steps.advance()
    table = timetable(user_data, trainer.settings, np.array([0, 1]), 0, 0)
    steps.load(flatten(model), table, client_keys(0, 0, np.array([0, 1])), trainer.settings.rate(0))
    steps.advance()
    vectors, _ = steps.results(flatten(model), 2)
    assert torch.equal(vectors, trainer.updates(flatten(model), [0, 1], 0).vectors)


def test_memory_bounds_the_chunk(monkeypatch):
    """A cohort is trained in two equal parts, or more where they would not fit; a chunk that is given holds."""
    monkeypatch.setattr("coterie.lab.training.stacked_trainer._BYTES_ON_CPU", 4 * 7 * 195)
    user_data, model = user_data_of([2] * 3), nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    assert ParameterLayout.of(model).dimension == 195
    chunks = [StackedTrainer(model, user_data, LocalTraining(), cohort=k).chunk for k in (1, 2, 7, 13, 14, 15, 40)]
    assert chunks == [1, 1, 4, 7, 7, 5, 7]
    assert StackedTrainer(model, user_data, LocalTraining(), cohort=12, chunk=2).chunk == 2


def test_on_a_cpu_convolutions_are_trained_one_by_one():
    """The written rule: convolutions one by one, everything else stacked."""
    user_data = user_data_of([2, 2])
    assert isinstance(make_trainer(small_network(), user_data, LocalTraining(), cohort=2), SeparateTrainer)
    assert isinstance(make_trainer(OwnModel(), user_data, LocalTraining(), cohort=2), StackedTrainer)


def test_equal_runs_give_equal_bits():
    """The same seed and chunks: the same bits, stacked; one by one even in other company."""
    user_data, model = user_data_of([9, 4, 6]), small_network()
    local = LocalTraining(minibatch=4, shuffled=True, momentum=0.3)
    parameters = flatten(model)
    for make in (SeparateTrainer, lambda *given, seed: StackedTrainer(*given, cohort=3, seed=seed)):
        first, again = (make(model, user_data, local, seed=5).updates(parameters, [0, 1, 2], 3) for _ in range(2))
        other = make(model, user_data, local, seed=6).updates(parameters, [0, 1, 2], 3)
        assert torch.equal(first.vectors, again.vectors)
        assert np.array_equal(first.losses, again.losses)
        assert not torch.equal(first.vectors, other.vectors)
    alone = SeparateTrainer(model, user_data, local, seed=5)
    company = alone.updates(parameters, [2, 0], 3).vectors[1]
    assert torch.equal(alone.updates(parameters, [0], 3).vectors[0], company)


class NoGradient(torch.autograd.Function):
    """The identity, whose gradient is zero: what a compiler makes of a function whose gradient it drops."""

    @staticmethod
    def forward(ctx, values):  # noqa: ARG004 - torch gives it
        """Return the values."""
        return values.clone()

    @staticmethod
    def backward(ctx, *grads):  # noqa: ARG004 - the same
        """Return zeros."""
        return torch.zeros_like(grads[0])


def state_for(model, local):
    """A loaded state of two clients, ready to be captured."""
    data = user_data_of((8, 5), (3, 32, 32), classes=4)
    trainer = StackedTrainer(model, data, local, cohort=2)
    users = np.array([0, 1])
    state = TrainingState(trainer.stack, trainer.data, local, like=flatten(trainer.model), clients=2, most=2)
    state.load(flatten(trainer.model), timetable(data, local, users, 0, 0), client_keys(0, 0, users), 0.1)
    return state


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("dropped", [None, 0, 1, 4, 5])
def test_a_compiler_that_drops_a_gradient_is_refused(momentum, dropped, monkeypatch):
    """A capture compares a compiled step with torch's own, names what differs, and leaves the state as it was."""
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(196, 4)
    )

    def compiler(function, *, dynamic):
        assert dynamic is False

        def compiled(values, *rest):
            if dropped is not None and len(rest) == 3:  # the losses; the other function that is compiled moves
                values = [
                    NoGradient.apply(value) if place == dropped else value for place, value in enumerate(values)
                ]
            return function(values, *rest)

        return compiled

    monkeypatch.setattr(torch, "compile", compiler)
    local = LocalTraining(minibatch=4, weight_decay=5e-4, momentum=momentum)
    state, plain = state_for(model, local), state_for(model, local)
    if dropped is not None:
        name = ("0.weight", "0.bias", "1.weight", "1.bias", "5.weight", "5.bias")[dropped]
        with pytest.raises(UsageError, match=rf"{name} differs by (9\d|100)%.*compiled = false"):
            state.capture(compiled=True)
        return
    state.capture(compiled=True)
    for each in (state, plain):
        each.advance()
    own, other = (each.results(torch.zeros(()), 2) for each in (state, plain))
    assert all(torch.equal(*pair) for pair in zip(own, other, strict=True))


def test_rounding_is_not_taken_for_a_fault():
    """Small differences pass, for parameters that hardly move too; a wrong client, a factor and a NaN do not."""
    generator = torch.Generator().manual_seed(0)
    expected = [torch.randn(3, 50, generator=generator), 1e-9 * torch.randn(3, 7, generator=generator)]
    names = ("weight", "bias")
    noise = [0.02 * torch.randn(3, 50, generator=generator), 1e-6 * torch.randn(3, 7, generator=generator)]
    check_compiled(expected, [own + other for own, other in zip(expected, noise, strict=True)], names)
    one = expected[0].clone()
    one[1] = 0.0
    for wrong in (one, 2.0 * expected[0], expected[0] * float("nan")):
        with pytest.raises(UsageError, match="weight differs by"):
            check_compiled(expected, [wrong, expected[1]], names)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own code
def test_compiled_normalisation_has_torchs_gradients():
    """Compiled, in float32 and in bfloat16, the gradients are those without compiling."""
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        values, weights, bias, factors = (
            torch.randn(2, 3, 4, 4, 8).to(dtype), torch.randn(2, 8), torch.randn(2, 8), torch.randn(2, 3, 4, 4, 8),
        )  # fmt: skip

        def loss(values, weights, bias, factors=factors):
            return (group_norm(values, 2, weights, bias, 1e-5).float() * factors).sum()

        inputs = [value.requires_grad_() for value in (values, weights, bias)]
        expected = torch.autograd.grad(loss(*inputs), inputs)
        compiled = torch.compile(loss, backend="aot_eager", dynamic=False)
        for own, other in zip(expected, torch.autograd.grad(compiled(*inputs), inputs), strict=True):
            torch.testing.assert_close(own, other)
