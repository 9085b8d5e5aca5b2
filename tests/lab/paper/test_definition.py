"""Experiments are read from their files, and digests name everything that decides a result."""

from dataclasses import replace
from pathlib import Path

import pytest

from coterie import UsageError
from coterie.lab.experiments.setup import prepare
from coterie.lab.paper.definition import (
    Experiment,
    experiments_folder,
    experiments_named,
    known_experiments,
    merged,
)
from coterie.lab.paper.outcome import Outcome
from support.paper.tiny import RUNS, read_tiny, write_tiny

KNOWN = known_experiments()


def test_the_experiments_of_the_checkout_are_found():
    """Every file of experiments/ is known by its name."""
    files = {path.stem for path in (Path(__file__).parents[3] / "experiments").glob("*.toml")}
    assert set(KNOWN) == files >= {"mnist", "cifar10", "ablation", "metrics", "family", "tradeoff", "threshold"}
    assert experiments_folder().name == "experiments"


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("quick", [False, True])
def test_every_experiment_makes_valid_specs(name, quick):
    """All runs have a spec, and no two of them the same digest; claims name settings and schemes that exist."""
    experiment = KNOWN[name].quick_version() if quick else KNOWN[name]
    if experiment.kind == "training":
        runs = list(experiment.runs())
        assert len({run.digest for run in runs}) == len(runs)
        assert len(runs) == len(experiment.settings) * len(experiment.seeds) * len(experiment.schemes)
        assert all(run.spec.aggregation.protocol == "plain" for run in runs)
    settings = {setting.name for setting in experiment.settings}
    for claim in KNOWN[name].claims:
        assert set(claim.settings) <= settings
        named = {*claim.schemes, claim.lowest, claim.above, claim.level} - {""}
        assert named <= set(KNOWN[name].schemes)
    for setting in experiment.settings:
        assert set(setting.paper) <= set(KNOWN[name].schemes)


def test_all_seeds_schemes_and_settings_of_the_tables_are_there():
    """Both tables have six schemes in two settings with five seeds, the ablation three seeds."""
    assert [len(list(KNOWN[name].runs())) for name in ("mnist", "cifar10", "ablation")] == [60, 60, 36]


def test_a_digest_ignores_where_a_run_runs_and_nothing_else(tmp_path):
    """The data folder, the device and compiled kernels change no digest; every other change of a spec does."""
    experiment = read_tiny(tmp_path)
    here = [run.digest for run in experiment.runs()]
    assert here == [run.digest for run in experiment.runs("elsewhere", "cpu")]
    compiled = replace(experiment, spec=merged(experiment.spec, {"training": {"compiled": True}}))
    assert here == [run.digest for run in compiled.runs()]
    changes = (
        {"evaluate_every": 2},
        {"data": {"users": 40}},
        {"data": {"order": "random"}},
        {"selection": {"per_round": 6}},
        {"selection": {"dropout": [0.1]}},
        {"selection": {"lost": 0.1}},
        {"selection": {"rounds_per_day": 24}},
        {"training": {"rounds": 4}},
        {"training": {"precision": "bfloat16"}},
        {"training": {"learning_rate": 0.2}},
        {"training": {"minibatch": 50}},
        {"aggregation": {"word_bits": 16}},
    )
    for change in changes:
        other = replace(experiment, spec=merged(experiment.spec, change))
        assert not set(here) & {run.digest for run in other.runs()}, change


def test_a_simulated_digest_changes_with_what_is_simulated_and_not_with_words():
    """Trials, schemes, settings and the spec are in it; title, notes, claims and the paper's numbers are not."""
    experiment = KNOWN["metrics"]
    words = replace(experiment, title="x", notes="y", claims=(), source="z")
    assert words.digest == experiment.digest
    papers = tuple(replace(setting, paper={}) for setting in experiment.settings)
    assert replace(experiment, settings=papers).digest == experiment.digest
    for other in (
        replace(experiment, trials=7),
        replace(experiment, schemes=("random",)),
        replace(experiment, settings=experiment.settings[:1]),
        replace(experiment, spec=merged(experiment.spec, {"training": {"rounds": 7}})),
        experiment.quick_version(),
    ):
        assert other.digest != experiment.digest


def test_one_run_of_two_experiments_has_one_digest():
    """The same spec under another experiment's or setting's name is the same run: its record serves both."""
    cifar10 = {run.digest for run in KNOWN["cifar10"].runs() if (run.setting, run.scheme) == ("IID", "T6")}
    again = {run.digest for run in KNOWN["availability-cifar10"].runs() if run.scheme == "T6"}
    assert again < cifar10


def test_the_tiny_experiment_prepares(tmp_path):
    """A spec of an experiment is one that a run can be prepared from."""
    runs = list(read_tiny(tmp_path).runs())
    assert len(runs) == RUNS
    assert prepare(runs[0].spec).user_data.users == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "cannot be read as an experiment"),
        ("titel = 'x'", "there is no titel in .*did you mean title"),
    ],
)
def test_a_bad_file_is_refused_by_name(text, message, tmp_path):
    """A file that is not TOML, or has a key that nobody reads, is refused with its name."""
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        Experiment.read(path)


def test_an_outcome_is_plain_data(tmp_path):
    """An outcome without rows still has all keys of the contract."""
    outcome = Outcome(read_tiny(tmp_path), (), ())
    assert {"name", "rows", "claims"} <= outcome.to_json().keys()


def test_experiments_are_named_once_by_name_or_file(tmp_path):
    """Names, `all` and files together give each experiment once; a file must not take a known one's name."""
    file = write_tiny(tmp_path)
    assert [each.name for each in experiments_named(["family", str(file), "family"])] == ["family", "tiny"]
    assert {each.name for each in experiments_named(["family", "all"])} == set(KNOWN)
    taken = file.rename(tmp_path / "mnist.toml")
    for names, message in (
        ([], "name experiments"),
        (["x"], "no experiment 'x'"),
        ([str(taken)], "rename the file"),
    ):
        with pytest.raises(UsageError, match=message):
            experiments_named(names)
