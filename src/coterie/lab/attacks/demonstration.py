"""The demonstration of the attacks: random selection against batches of two and of four, on the shipped data.

Three runs that differ in nothing but who takes part are trained and attacked; then every user has one image, and
the server looks for it; then it cheats. All of it takes a few minutes on a CPU.

Over a window of rounds the server takes the sums apart, at the window's first model, then seeks the image behind
each estimate (fig:recon_MSE_PSNR). All schemes start from the same model, so that their pictures can be compared.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product, repeat
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.errors import UsageError
from coterie.federation.ledger import PLAIN
from coterie.lab.attacks.attack import attack_run, cohorts, observe, read_attacked_run
from coterie.lab.attacks.deviation import (
    Deviation,
    DeviationResult,
    DevicePopulation,
    Devices,
    LosingUsers,
    OtherModel,
    OtherQuantiser,
    OtherRecipe,
    PartOfBatch,
    SealedDevices,
    UnsealedDevices,
    attempt,
)
from coterie.lab.attacks.disaggregation import LeastSquares, disaggregation_errors, estimated_updates
from coterie.lab.attacks.inversion import ImageRange, Inversion, SearchProgress, gradient_of_step
from coterie.lab.attacks.score import ImageScore, UpdateErrors, image_score
from coterie.lab.experiments.run import start_or_resume
from coterie.lab.experiments.setup import Setup, prepare
from coterie.lab.experiments.spec import Spec
from coterie.lab.training import (
    Dataset,
    Trainer,
    make_model,
)
from coterie.lab.training.data import Partition, UserData
from coterie.lab.training.models import flatten
from coterie.lab.training.published import DATASETS, load
from coterie.lab.training.settings import LocalTraining
from coterie.lab.training.stacked_trainer import make_trainer
from coterie.lab.training.trainer import DivergedError
from coterie.secagg import PROTOCOLS
from coterie.values import FloatArray

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


# --- a deviating server: which updates it gets, and which pictures come of them

TRIALS: tuple[tuple[type[Devices], str], ...] = (
    (UnsealedDevices, "secagg+"),
    (SealedDevices, "secagg+"),
    (SealedDevices, "open"),
)
"""Where attacks are tried: without a seal, and against it, where a round shows least and where it shows most."""
OVERFLOW = 1e30
"""A parameter with which no training gives finite numbers."""
STANDSTILL = 1e-30
"""A learning rate with which no parameter moves in 32 bits."""


@dataclass(frozen=True, eq=False)
class DeviationPicture:
    """What one attack got, and the image that inversion makes of it, if there is anything to make one of."""

    result: DeviationResult
    image: Tensor | None
    score: ImageScore | None

    def record(self) -> dict[str, Any]:
        """Return it as plain JSON values; the image as rows of pixels."""
        result = self.result
        return {
            "attack": result.attack,
            "protocol": result.protocol,
            "sealed": result.sealed,
            "outcome": result.outcome.value,
            "error": result.error,
            "correlation": result.correlation,
            "reason": result.reason,
            **({"psnr": None, "mse": None, "ssim": None} if self.score is None else asdict(self.score)),
            "image": None if self.image is None else levels(self.image),
        }


@dataclass(frozen=True, eq=False)
class DeviationSetup:
    """Users in batches of T, each with one image of a data set, who take one step of SGD on it in a round."""

    dataset: Dataset
    settings: LocalTraining
    users: int = 12
    privacy: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.users < 3 * self.privacy or self.users % self.privacy:
            raise UsageError(
                f"{self.users} users cannot be in three or more batches of {self.privacy}; give a multiple of it"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The users' ids; the user in place i has the image i of the data set."""
        return tuple(f"user-{number:02d}" for number in range(self.users))

    def module(self) -> nn.Module:
        """Return the global model."""
        return make_model(
            self.settings.model, self.dataset.classes, self.seed, self.dataset.train.images.shape[1:]
        )

    def population(self) -> DevicePopulation:
        """Return the users as a deviating server meets them, each with the trainer that runs use."""
        names, module = self.names, self.module()
        partition = Partition.from_users(len(self.dataset.train), [[place] for place in range(self.users)])
        data, parameters = UserData.of_dataset(self.dataset, partition), flatten(module)
        trainers: dict[bytes, Trainer] = {}

        def train(user: str, model: bytes, recipe: bytes) -> FloatArray:
            if recipe not in trainers:
                settings = LocalTraining.from_recipe(recipe)
                trainers[recipe] = make_trainer(module, data, settings, cohort=1, seed=self.seed, workers=1)
            values = torch.frombuffer(bytearray(model), dtype=torch.float32)
            try:
                updates = trainers[recipe].updates(values, [names.index(user)], 0)
            except DivergedError:
                return np.full(len(values), np.nan)  # which the device's quantiser makes the zero update
            return updates.vectors[0].double().numpy()

        batches = tuple(names[start : start + self.privacy] for start in range(0, self.users, self.privacy))
        recipe = self.settings.recipe_bytes()
        return DevicePopulation(batches, train, parameters.numpy().tobytes(), len(parameters), recipe)

    def attacks(self) -> tuple[Deviation, ...]:
        """Return all attacks, made for this model and this training."""
        dimension = len(flatten(self.module()))
        crafted = np.full(dimension, OVERFLOW, dtype=np.float32).tobytes()
        standing = replace(self.settings, learning_rate=STANDSTILL).recipe_bytes()
        return PartOfBatch(), LosingUsers(), OtherModel(crafted), OtherRecipe(standing), OtherQuantiser()

    def pictures(
        self,
        target: str,
        inversion: Inversion,
        progress: StageProgress = lambda what, done, total: None,  # noqa: ARG005 - told to nobody
    ) -> list[DeviationPicture]:
        """Try every attack on one user in each of `TRIALS`, a second each; turn what it got into pictures."""
        population, results = self.population(), []
        attempts = list(product(self.attacks(), TRIALS))
        for attack, (kind, inner) in attempts:
            results.append(attempt(attack, population, target, kind, PROTOCOLS[inner]))
            progress("a server that cheats", len(results), len(attempts))
        original = self.original(target)
        images = self._images(results, inversion, lambda done, total: progress("its pictures", done, total))
        return [
            DeviationPicture(result, image, None if image is None else image_score(image, original))
            for result, image in zip(results, images, strict=True)
        ]

    def original(self, target: str) -> Tensor:
        """Return a user's image, channels × height × width, from 0 to 1."""
        return self.dataset.train.images[self.names.index(target)].float() / 255

    def record(self, target: str, pictures: Sequence[DeviationPicture]) -> dict[str, Any]:
        """Return the attacks on a user as plain JSON values, from which they can be shown again."""
        return {
            "users": self.users,
            "privacy": self.privacy,
            "target": target,
            "original": levels(self.original(target)),
            "attempts": [picture.record() for picture in pictures],
        }

    def _images(
        self, results: Sequence[DeviationResult], inversion: Inversion, progress: SearchProgress
    ) -> list[Tensor | None]:
        """Invert all estimates at once; where there is none, there is no image."""
        module, image_range = self.module(), ImageRange(self.dataset.mean, self.dataset.std)
        parameters = flatten(module)
        rate, decay = self.settings.rate(0), self.settings.weight_decay
        gradients = {
            place: gradient_of_step(torch.from_numpy(result.estimate).float(), parameters, rate, decay)
            for place, result in enumerate(results)
            if result.estimate is not None
        }
        shape = tuple(self.dataset.train.images.shape[1:])
        inverted = inversion.invert(
            module, torch.stack(list(gradients.values())), shape, image_range,
            classes=self.dataset.classes, seed=self.seed, progress=progress,
        )  # fmt: skip
        images = dict(zip(gradients, image_range.levels(inverted.images[:, 0]), strict=True))
        return [images.get(place) for place in range(len(results))]


# --- the demonstration

SCHEMES = ("random", "T2", "T4")
TARGET = 5
"""The user whom a cheating server is after."""


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration does: the runs' spec, without a scheme, and how pictures are taken."""

    spec: Spec = field(
        default_factory=lambda: Spec().changed(
            {
                "keep_aggregates": True,
                "evaluate_every": 1000,
                "data.users": 40,
                "data.partition": "shards",
                "data.order": "random",
                "selection.per_round": 8,
                "selection.dropout": [0.0],
                "selection.lost": 0.0,
                "training.rounds": 80,
                "training.minibatch": 50,
                "training.learning_rate": 0.05,
                "training.schedule": [[20, 0.0004]],
                "training.shuffled": False,
                "training.device": "cpu",
                "aggregation.protocol": PLAIN,
            }
        )
    )
    """Twenty rounds of learning, then sixty in which the model has settled."""
    pictures: PictureSettings = field(
        default_factory=lambda: PictureSettings(
            rate=3e-4, count=6, search=Inversion(steps=400, restarts=1, variation=5e-2)
        )
    )
    window: int | None = 60

    def run(self, out: Path, progress: StageProgress) -> dict[str, Any]:
        """Train, attack and take pictures; return the record. Runs that are in the folder already go on."""
        results = [self._attack_scheme(scheme, out / scheme, progress) for scheme in SCHEMES]
        setup = prepare(self.spec.changed({"selection.scheme": SCHEMES[0]}))
        pictures = take_pictures(setup, SCHEMES, self.pictures, progress)
        for result in results:
            gallery = pictures.galleries[result["scheme"]]
            result["psnr"] = round(fmean(score.psnr for score in gallery.scores), 2)
        deviation = self._deviation(progress)
        return {"schemes": results, "pictures": pictures.record(), "deviation": deviation, "out": str(out)}

    def _attack_scheme(self, scheme: str, folder: Path, progress: StageProgress) -> dict[str, Any]:
        spec = self.spec.changed({"selection.scheme": scheme})
        total = spec.training.rounds
        with start_or_resume(spec, folder) as job:
            for row in job.steps():
                progress(f"training, {scheme}", row.step, total)
        progress(f"attacking, {scheme}", total, total)
        return attack_run(read_attacked_run(folder), self.window).record()

    def _deviation(self, progress: StageProgress) -> dict[str, Any]:
        """Try what a server does that breaks the rules, on one user with one image, as plain JSON values."""
        settings = LocalTraining(model="mlp", minibatch=1, shuffled=False, dropout=False)
        setup = DeviationSetup(load(DATASETS[self.spec.data.source], self.spec.data.folder), settings)
        target = setup.names[TARGET]
        return setup.record(target, setup.pictures(target, self.pictures.search, progress))
