"""`coterie attack` as its user meets it."""

import json

import pytest
from rich.console import Console

from coterie.cli.attack import _demonstrate, _print_deviation
from support.cli.command import coterie
from support.experiments.tiny import finished, tiny_spec, write_data

SETTLED = {
    "training__rounds": 26,
    "training__learning_rate": 0.001,
    "training__shuffled": False,
    "selection__scheme": "random",
    "selection__dropout": [0.0],
    "selection__lost": 0.0,
    "evaluate_every": 26,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A settled run that kept its aggregates, and one that did not."""
    base = tmp_path_factory.mktemp("attack")
    data = write_data(base / "data")
    finished(tiny_spec(data, "plain", keep_aggregates=True, **SETTLED), base / "run")
    finished(tiny_spec(data, "plain", training__rounds=1), base / "forgetful")
    return base


def test_a_run_is_attacked_and_reported(folder):
    """Verdict first, then a table; the folder has the page, the figure and the record."""
    process = coterie("attack", folder / "run")
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("The server found the updates of 12 of 12 users.")
    assert {path.name for path in (folder / "run" / "attack").iterdir()} == {
        "attack.json", "errors.png", "report.html",
    }  # fmt: skip


def test_json_is_one_object_of_the_agreed_form(folder, tmp_path):
    """Schemes with users found, errors and the image's quality, and where it was written."""
    process = coterie("attack", folder / "run", "--window", 26, "--out", tmp_path / "out", "--json")
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    (scheme,) = result["schemes"]
    assert (scheme["scheme"], scheme["privacy"], scheme["users"], scheme["users_found"]) == (
        "random",
        None,
        12,
        12,
    )
    assert scheme["error"].keys() == {"median", "mean", "least"}
    assert scheme["psnr"] is None
    assert scheme["window"]["rounds"] == 26
    assert result["out"] == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["forgetful"], "kept no aggregates, so there is nothing to attack; run it again with --keep-aggregates"),
        (["nowhere"], "is not the folder of a run"),
        (["run", "--window", "99"], "only 26 had a result"),
        (["run", "--demo"], "or --demo"),
        ([], "or --demo"),
        (["--demo", "--window", "3"], "no effect"),
        (["run", "--out", "run/record.jsonl"], "there is a file of this name; give the path of a folder"),
    ],
)
def test_what_cannot_be_attacked_ends_in_one_line(folder, arguments, words):
    """Exit code 2, what is wrong and what to do, no traceback."""
    process = coterie("attack", *arguments, cwd=folder)
    assert process.returncode == 2
    assert words in process.stderr
    assert "Traceback" not in process.stderr
    assert process.stdout == ""


@pytest.mark.parametrize("attacked", ["run", "--demo"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(folder, attacked):
    """Nothing is trained or taken apart whose result could not be kept."""
    process = coterie("attack", attacked, "--out", "run/record.jsonl/results", cwd=folder)
    assert process.returncode == 2
    assert "run/record.jsonl/results cannot be written: a part of the path is a file" in process.stderr
    assert "training" not in process.stderr
    assert "taking sums apart" not in process.stderr


def test_a_demonstration_that_is_interrupted_says_how_to_go_on(tmp_path, capsys):
    """The runs are kept, and the same command goes on with them."""

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _demonstrate(tmp_path / "demo", interrupted)
    assert f"what is trained is kept in {tmp_path / 'demo'}; the same command goes on" in capsys.readouterr().err


def test_what_a_cheating_server_got_is_printed(capsys):
    """A row for each way of cheating, and the verdict before them."""
    image = [[[0], [255]], [[128], [7]]]
    attempt = {"attack": "asks part of a batch", "protocol": "secagg+", "reason": "why"}
    recovered = {"outcome": "recovered", "error": 3e-13, "correlation": 1.0, "psnr": 21.0, "image": image}
    refused = {"outcome": "refused", "error": None, "correlation": None, "psnr": None, "image": None}
    attempts = [{**attempt, "sealed": False, **recovered}, {**attempt, "sealed": True, **refused}]
    deviation = {"users": 12, "privacy": 4, "target": "user-05", "original": image, "attempts": attempts}
    _print_deviation(deviation, Console())
    printed = capsys.readouterr().out
    assert "A server that cheats. Without a seal 1 of 1 attack gave the user's update." in printed
    words = " ".join(printed.splitlines()[-1].split())
    assert words == "asks part of a batch recovered refused"
