"""The demonstration of the attacks: random selection against batches of two and of four, on the shipped data.

Three runs that differ in nothing but who takes part are trained and attacked; then every user has one image, and
the server looks for it; then it cheats. All of it takes a few minutes on a CPU.
"""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from coterie.attacks.inversion import Inversion
from coterie.experiment.attack import attack_run, read_attacked_run
from coterie.experiment.deviation import DeviationSetup
from coterie.experiment.pictures import PictureSettings, StageProgress, take_pictures
from coterie.experiment.run import start_or_resume
from coterie.experiment.setup import prepare
from coterie.experiment.spec import Spec
from coterie.federation.ledger import PLAIN
from coterie.training.data.published import DATASETS, load
from coterie.training.settings import LocalTraining

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
