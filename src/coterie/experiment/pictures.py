"""From sums to pictures (fig:recon_MSE_PSNR): every user has one image and takes one step, and the server looks.

Over a window of rounds it takes the sums apart, at the window's first model, then seeks the image behind each
estimate. All schemes start from the same model, so that their pictures can be compared.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.attacks.disaggregation import LeastSquares, disaggregation_errors, estimated_updates
from coterie.attacks.inversion import ImageRange, Inversion, gradient_of_step
from coterie.attacks.score import ImageScore, UpdateErrors, image_score
from coterie.experiment.attack import cohorts, observe
from coterie.experiment.setup import Setup
from coterie.training.data.dataset import UserData
from coterie.training.data.partition import Partition
from coterie.training.engine.stacked_trainer import make_trainer
from coterie.training.models import flatten
from coterie.training.settings import LocalTraining

StageProgress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class PictureSettings:
    """How pictures are taken: one image for each user, `rounds` rounds of one step each, then the search."""

    rounds: int = 80
    """Rounds in the window."""
    rate: float = 1e-3
    """The learning rate of the users' one step."""
    count: int = 8
    """Users whose images are sought."""
    search: Inversion = field(default_factory=Inversion)
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Gallery:
    """What the server made of one scheme's rounds: an image for each of some users, and how good it is."""

    errors: UpdateErrors
    """Of all users' updates."""
    images: Tensor
    """Images × channels × height × width, from 0 to 1."""
    scores: tuple[ImageScore, ...]


@dataclass(frozen=True, eq=False)
class ReconstructedPictures:
    """The originals, and a gallery for each scheme, in their order."""

    users: tuple[int, ...]
    originals: Tensor
    galleries: Mapping[str, Gallery]

    def record(self) -> dict[str, Any]:
        """Return numbers and images as plain JSON values."""
        return {
            "users": list(self.users),
            "originals": [levels(image) for image in self.originals],
            "schemes": {
                scheme: {
                    "error": float(f"{gallery.errors.errors.mean():.4g}"),
                    "users_found": len(gallery.errors.found_users),
                    "psnr": [round(score.psnr, 2) for score in gallery.scores],
                    "mse": [round(score.mse, 5) for score in gallery.scores],
                    "ssim": [round(score.ssim, 4) for score in gallery.scores],
                    "images": [levels(image) for image in gallery.images],
                }
                for scheme, gallery in self.galleries.items()
            },
        }


def levels(image: Tensor) -> list[list[list[int]]]:
    """Return an image as height × width × channels of levels from 0 to 255."""
    levels: list[list[list[int]]] = (image * 255).round().to(torch.uint8).permute(1, 2, 0).tolist()
    return levels


def one_image_each(user_data: UserData) -> UserData:
    """Return users' data cut down to each one's first example."""
    firsts = [user_data.of(user)[:1] for user in range(user_data.users)]
    return replace(user_data, partition=Partition.from_users(len(user_data.labels), firsts))


def take_pictures(
    setup: Setup,
    schemes: Sequence[str],
    settings: PictureSettings,
    progress: StageProgress = lambda what, done, total: None,  # noqa: ARG005 - told to nobody
) -> ReconstructedPictures:
    """Attack each scheme from the first model of a run's setup, and return what came out."""
    per_round, device = setup.spec.selection.per_round, setup.trainer.device
    data, parameters = one_image_each(setup.user_data), flatten(setup.model).to(device)
    training = LocalTraining(epochs=1, minibatch=1, learning_rate=settings.rate, shuffled=False, dropout=False)
    trainer = make_trainer(setup.model, data, training, cohort=per_round, seed=settings.seed)
    everybody = repeat(np.ones(data.users, dtype=np.bool_))
    truth = trainer.updates(parameters, np.arange(data.users), 0).vectors
    chosen = tuple(range(0, data.users, max(1, data.users // settings.count)))[: settings.count]
    errors: dict[str, UpdateErrors] = {}
    gradients = []
    for scheme in schemes:
        progress(f"one image each, {scheme}", len(errors), len(schemes))
        learned = cohorts(setup.world.selector(scheme, per_round), everybody, data.users, settings.seed)
        view = observe(trainer, parameters, islice(learned, settings.rounds))
        errors[scheme] = disaggregation_errors(view, LeastSquares(), truth)
        estimates = estimated_updates(view, LeastSquares())[list(chosen)]
        gradients.append(gradient_of_step(estimates, parameters, settings.rate))
    image_range = ImageRange(data.mean, data.std)
    inverted = settings.search.invert(
        setup.model,
        torch.cat(gradients),
        tuple(data.images.shape[1:]),
        image_range,
        classes=data.classes,
        seed=settings.seed,
        progress=lambda done, total: progress("looking for the images", done, total),
    )
    places = torch.tensor([int(data.of(user)[0]) for user in chosen], device=device)
    originals = image_range.levels(data.images[places])
    images = torch.split(image_range.levels(inverted.images[:, 0]), len(chosen))
    return ReconstructedPictures(
        chosen,
        originals,
        {
            scheme: Gallery(errors[scheme], found, _scores(found, originals))
            for scheme, found in zip(schemes, images, strict=True)
        },
    )


def _scores(images: Tensor, originals: Tensor) -> tuple[ImageScore, ...]:
    return tuple(image_score(image, original) for image, original in zip(images, originals, strict=True))
