"""A deviating server among users with one image each: which updates it gets, and which pictures come of them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.attacks.deviation import (
    Deviation,
    DeviationResult,
    LosingUsers,
    OtherModel,
    OtherQuantiser,
    OtherRecipe,
    PartOfBatch,
    attempt,
)
from coterie.attacks.devices import DevicePopulation, Devices, SealedDevices, UnsealedDevices
from coterie.attacks.inversion import ImageRange, Inversion, SearchProgress, gradient_of_step
from coterie.attacks.score import ImageScore, image_score
from coterie.errors import UsageError
from coterie.experiment.pictures import StageProgress, levels
from coterie.secagg import PROTOCOLS
from coterie.training import (
    Dataset,
    LocalTraining,
    Partition,
    Trainer,
    UserData,
    flatten,
    make_model,
    make_trainer,
)
from coterie.training.engine.trainer import DivergedError
from coterie.values import FloatArray

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
