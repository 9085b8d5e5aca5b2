"""The demonstration, made small: trains, attacks, takes pictures and cheats, and goes on where it stopped."""

import json

import pytest

from coterie.errors import UsageError
from coterie.lab.attacks.demonstration import SCHEMES, Demonstration, PictureSettings
from coterie.lab.attacks.inversion import Inversion


def small(**changes):
    """The demonstration with a small model and few rounds."""
    spec = Demonstration().spec.changed(
        {
            "data.users": 12,
            "selection.per_round": 4,
            "training.rounds": 30,
            "training.model": "mlp",
            "training.schedule": [[4, 0.0004]],
            "training.minibatch": 500,
            **changes,
        }
    )
    search = Inversion(steps=150, restarts=1, variation=5e-2)
    return Demonstration(spec, PictureSettings(rounds=30, rate=3e-4, count=2, search=search), window=24)


def test_random_selection_gives_users_away_and_batches_do_not(tmp_path):
    """Users found, images and a cheating server, in one record of plain JSON values; runs are not made twice."""
    stages = []
    record = small().run(tmp_path, lambda what, done, total: stages.append(what))
    beyond = {each["scheme"]: each["users_found"] - each["found_by_chance"] for each in record["schemes"]}
    assert beyond["random"] == 12
    assert max(beyond["T2"], beyond["T4"]) <= 0
    psnr = {each["scheme"]: each["psnr"] for each in record["schemes"]}
    assert psnr["random"] > max(psnr["T2"], psnr["T4"]) + 3
    assert {each["outcome"] for each in record["deviation"]["attempts"] if not each["sealed"]} == {"recovered"}
    assert {"training, random", "attacking, T4", "looking for the images"} <= set(stages)
    json.dumps(record)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(SCHEMES)

    with pytest.raises(UsageError, match="other settings"):
        small(**{"training.rounds": 31}).run(tmp_path, lambda what, done, total: None)


def test_a_demonstration_that_was_stopped_goes_on_where_it_was(tmp_path):
    """Rounds that were trained before are not trained again."""
    steps = []

    def stop_at(stage, step):
        def progress(what, done, _total):
            steps.append((what, done))
            if (what, done) == (stage, step):
                raise KeyboardInterrupt

        return progress

    with pytest.raises(KeyboardInterrupt):
        small().run(tmp_path, stop_at("training, random", 10))
    with pytest.raises(KeyboardInterrupt):
        small().run(tmp_path, stop_at("attacking, random", 30))
    trained = [done for what, done in steps if what == "training, random"]
    assert trained == list(range(1, 31))
