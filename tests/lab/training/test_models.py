"""The models are those of the paper, and any module without hidden state can be trained."""

import pytest
import torch
from torch import nn

from coterie import UsageError
from coterie.lab.training.models import (
    MODELS,
    KeyedDropout,
    ParameterLayout,
    dropout_keys,
    flatten,
    make_model,
    prepare_model,
    unflatten,
)
from support.training.clients import OwnModel

INPUTS = {
    "mnist-cnn": (1, 28, 28),
    "lenet": (3, 32, 32),
    "vgg-11": (3, 32, 32),
    "authors-vgg-11": (3, 32, 32),
    "small-cnn": (1, 28, 28),
    "mlp": (5,),
    "logistic": (2, 3),
}


@pytest.mark.parametrize(("name", "classes", "count"), [("mnist-cnn", 10, 1_663_370), ("lenet", 10, 62_006)])
def test_models_have_the_published_number_of_parameters(name, classes, count):
    """The paper's CNN and LeNet have as many parameters as it states."""
    assert sum(value.numel() for value in make_model(name, classes, 0).parameters()) == count


@pytest.mark.parametrize("name", MODELS)
def test_every_model_maps_its_images_to_classes(name):
    """A model gives one output per class, and works after preparation."""
    images = torch.zeros(2, *INPUTS[name])
    assert make_model(name, 7, 0, INPUTS[name])(images).shape == (2, 7)
    assert prepare_model(make_model(name, 7, 0, INPUTS[name]))(images).shape == (2, 7)


def test_a_model_made_for_its_examples_needs_their_shape():
    """Without the shape of an example there is no perceptron."""
    with pytest.raises(UsageError, match="mlp is made for its examples; give their shape"):
        make_model("mlp", 7, 0)


def test_the_layers_of_vgg_11_are_normalised_in_groups_of_16_channels():
    """VGG-11 has eight convolutions, each with GroupNorm of channels/16 groups, and one linear layer."""
    modules = list(make_model("vgg-11", 100, 0).modules())
    norms = [module for module in modules if isinstance(module, nn.GroupNorm)]
    assert [norm.num_channels for norm in norms] == [64, 128, 256, 256, 512, 512, 512, 512]
    assert all(norm.num_groups == norm.num_channels // 16 for norm in norms)
    assert sum(isinstance(module, nn.Linear) for module in modules) == 1


def test_the_seed_alone_decides_the_first_parameters():
    """Equal seeds give equal models, others others, and torch's own generator does not move."""
    before = torch.random.get_rng_state()
    first, again, other = (flatten(make_model("small-cnn", 10, seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_vectors_and_models_go_back_and_forth():
    """What is flattened comes back to the same places; stacked vectors split with the clients in front."""
    model = OwnModel()
    layout = ParameterLayout.of(model)
    assert "fixed" not in layout.names
    assert not [name for name in layout.names if name.startswith("again")]
    vector = torch.arange(float(layout.dimension))
    unflatten(model, vector)
    assert torch.equal(flatten(model), vector)
    assert torch.equal(model.first.weight, layout.split(vector)["first.weight"])
    stacked = torch.stack([vector, -vector])
    assert torch.equal(layout.join(layout.split(stacked), leading=1), stacked)
    with pytest.raises(UsageError, match="shape \\(3,\\) was given for a model of"):
        layout.split(vector[:3])
    with pytest.raises(UsageError, match="float64; give float32"):
        layout.split(vector.double())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
            "1.running_mean.*outside the sealed vector.*GroupNorm",
        ),
        (nn.Sequential(nn.Conv2d(1, 1, 1), nn.Dropout2d()), "layer '1' is Dropout2d"),
        (nn.ReLU(), "no parameters to train"),
        (nn.LazyLinear(2), "without a shape yet"),
        (nn.Linear(2, 2).double(), "'weight' is of torch.float64"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_models_that_cannot_be_trained_here_are_refused(model, message):
    """Buffers, other kinds of dropout, and nothing to train: each is named with what to do."""
    with pytest.raises(UsageError, match=message):
        prepare_model(model)


def test_preparation_leaves_the_callers_model_alone():
    """The model is copied; a dropout layer under two names stays one layer."""
    drop = nn.Dropout(0.5)
    model = nn.Sequential(nn.Linear(2, 2), drop, nn.Sequential(nn.Linear(2, 2), drop))
    ready = prepare_model(model)
    assert model[1] is drop
    assert isinstance(ready[1], KeyedDropout)
    assert ready[1] is ready[2][1]
    assert dropout_keys(ready) == ("1.key",)
