"""Images out of gradients: found from one user's gradient, and not from the mean of several."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from coterie.errors import UsageError
from coterie.lab.attacks.inversion import ImageRange, Inversion, gradient_of_step, infer_labels
from coterie.lab.attacks.score import image_score
from coterie.lab.training import MNIST_SMALL, load, make_model

SHAPE, CLASSES = (1, 28, 28), 10


@pytest.fixture(scope="module")
def digits():
    """Four digits with their labels, as levels and as users have them, and the range of their values."""
    dataset = load(MNIST_SMALL)
    levels = dataset.train.images[:4].float() / 255
    image_range = ImageRange(dataset.mean, dataset.std)
    return levels, (levels - dataset.mean[0]) / dataset.std[0], dataset.train.labels[:4], image_range


def gradient(model, images, labels):
    model.zero_grad()
    functional.cross_entropy(model(images), labels).backward()
    return torch.cat([value.grad.flatten() for value in model.parameters()])


def test_a_digit_comes_back_from_its_gradient_and_not_from_a_mean_of_four(digits):
    """The picture of one user is plainly there; sought in the mean of four users' gradients it is far worse."""
    levels, images, labels, image_range = digits
    model = make_model("mlp", CLASSES, 0, SHAPE)
    alone = gradient(model, images[:1], labels[:1])
    together = gradient(model, images, labels)
    inverted = Inversion(steps=150, restarts=1).invert(
        model, torch.stack([alone, together]), SHAPE, image_range, classes=CLASSES, seed=0
    )
    assert inverted.labels[0].tolist() == labels[:1].tolist()
    mine, mixture = (image_score(image_range.levels(found[0]), levels[0]) for found in inverted.images)
    assert mine.psnr > 20
    assert mine.psnr > mixture.psnr + 6
    assert inverted.distance[0] < 0.05 < inverted.distance[1]


def test_more_restarts_never_have_a_larger_distance(digits):
    """The answer is the best of all starts, trial by trial."""
    _, images, labels, image_range = digits
    model = make_model("mlp", CLASSES, 0, SHAPE)
    known = torch.stack([gradient(model, images[user : user + 1], labels[user : user + 1]) for user in range(2)])
    once, twice = (
        Inversion(steps=10, restarts=restarts).invert(model, known, SHAPE, image_range, classes=CLASSES, seed=0)
        for restarts in (1, 2)
    )
    assert (twice.distance <= once.distance).all()
    low, high = image_range.bounds(twice.images)
    assert ((twice.images >= low) & (twice.images <= high)).all()


def test_an_update_of_one_step_tells_its_gradient():
    """δ = -η (g + λ x), as the trainer takes it."""
    model = nn.Linear(3, 2)
    vector = torch.cat([value.detach().flatten() for value in model.parameters()])
    known = gradient(model, torch.ones(1, 3), torch.tensor([1]))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.3)
    optimiser.step()
    update = torch.cat([value.detach().flatten() for value in model.parameters()]) - vector
    assert torch.allclose(gradient_of_step(update, vector, 0.1, 0.3), known, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("label", range(4))
def test_one_images_label_is_read_from_the_last_layer(label, bias):
    """From the bias, or from the rows of the weights behind a ReLU."""
    torch.manual_seed(label)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4, bias=bias))
    known = gradient(model, torch.rand(1, 6), torch.tensor([label]))[None]
    names = dict(model.named_parameters())
    parts = torch.split(known, [value.numel() for value in names.values()], dim=1)
    named = {name: part.reshape(1, *value.shape) for (name, value), part in zip(names.items(), parts, strict=True)}
    assert infer_labels(named, 4, images=1).tolist() == [[label]]


def test_a_model_without_an_output_layer_at_its_end_is_refused():
    """Labels cannot be read from it, and the message says so."""
    with pytest.raises(UsageError, match="labels cannot be read"):
        infer_labels({"scale": torch.zeros(1, 3)}, 10, images=1)


@pytest.mark.parametrize(("steps", "restarts", "size", "words"), [(1, 0, 0, "restarts"), (1, 1, 5, "parameters")])
def test_what_cannot_be_searched_is_refused(digits, steps, restarts, size, words):
    """No restart at all, and gradients of another model."""
    model = make_model("logistic", CLASSES, 0, SHAPE)
    known = torch.zeros(1, sum(value.numel() for value in model.parameters()) + size)
    with pytest.raises(UsageError, match=words):
        Inversion(steps=steps, restarts=restarts).invert(model, known, SHAPE, digits[3], classes=CLASSES, seed=0)
