"""Images that a server makes of its estimates (fig:recon_MSE_PSNR): CIFAR-10, LeNet, one image for each user.

Writes results/inversion.json. It takes half a minute on a GPU, and six minutes of computing time on two cores:
python experiments/inversion.py DATA
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from coterie.lab.attacks.demonstration import PictureSettings, take_pictures
from coterie.lab.attacks.inversion import Inversion
from coterie.lab.experiments.setup import prepare
from coterie.lab.experiments.spec import Spec
from coterie.lab.paper.reconstruction import made_with

RECORD = Path(__file__).parent / "results" / "inversion.json"
SCHEMES = ("random", "T2", "T4")
SPEC = Spec().changed(
    {
        "data.source": "cifar10",
        "data.users": 40,
        "selection.scheme": "random",
        "selection.per_round": 8,
        "training.model": "lenet",
        "training.dropout": False,
        "aggregation.protocol": "plain",
    }
)
SETTINGS = PictureSettings(count=8, search=Inversion(steps=1600, restarts=2, variation=0.2))


def write_pictures(spec: Spec, settings: PictureSettings, path: Path) -> None:
    """Take the pictures, and write them down with what they were made from."""
    setup = prepare(spec)
    record = take_pictures(setup, SCHEMES, settings).record()
    origin = {
        "spec": spec.changed({"data.folder": SPEC.data.folder}).tables(),
        "data": setup.data_digest,
        "settings": asdict(settings),
        "made_with": made_with(setup),
    }
    path.write_text(json.dumps(record | origin) + "\n", encoding="utf-8")


def main() -> None:
    """Make the record again, from a folder with the data."""
    write_pictures(SPEC.changed({"data.folder": sys.argv[1]}), SETTINGS, RECORD)
    print(f"wrote {RECORD}; the figure is drawn by docs/reproduction.py")


if __name__ == "__main__":
    main()
