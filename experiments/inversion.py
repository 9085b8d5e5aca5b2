"""Images that a server makes of its estimates (fig:recon_MSE_PSNR): CIFAR-10, LeNet, one image for each user.

Writes results/inversion.json. It takes half a minute on a GPU:
python experiments/inversion.py DATA
"""

import json
import sys
from pathlib import Path

from coterie.attacks.inversion import Inversion
from coterie.experiment.parts import prepare
from coterie.experiment.pictures import PictureSettings, take_pictures
from coterie.experiment.spec import Spec
from coterie.selection import selector_named
from coterie.training.models import flatten

RESULTS = Path(__file__).parent / "results"
USERS, PER_ROUND = 40, 8
SCHEMES = ("random", "T2", "T4")
SEARCH = Inversion(steps=1600, restarts=2, variation=0.2)


def main() -> None:
    """Take the pictures and write them down."""
    spec = Spec().changed(
        {
            "data.source": "cifar10",
            "data.folder": sys.argv[1],
            "data.users": USERS,
            "selection.scheme": "random",
            "selection.per_round": PER_ROUND,
            "training.model": "lenet",
            "training.dropout": False,
            "aggregation.protocol": "plain",
        }
    )
    parts = prepare(spec)
    pictures = take_pictures(
        parts.model,
        flatten(parts.model).to(parts.trainer.device),
        parts.user_data,
        schemes={scheme: selector_named(scheme, USERS, PER_ROUND, None) for scheme in SCHEMES},
        per_round=PER_ROUND,
        settings=PictureSettings(count=8, search=SEARCH),
    )
    (RESULTS / "inversion.json").write_text(json.dumps(pictures.record()) + "\n", encoding="utf-8")
    print(f"wrote {RESULTS / 'inversion.json'}; the figure is drawn by docs/reproduction.py")


if __name__ == "__main__":
    main()
