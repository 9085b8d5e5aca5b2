"""`coterie report` and `coterie run --seeds`, used as their user would."""

import json
import sys

import pytest

from coterie.cli import main
from coterie.lab.experiments.folder import read_record
from support.cli.command import coterie
from support.experiments.tiny import ROUNDS, data, new_folder, tiny_spec, write_spec

__all__ = ["data", "new_folder"]  # fixtures


@pytest.fixture(scope="module")
def spec_file(data, tmp_path_factory):
    """A run without cryptography, which is fast."""
    return write_spec(tiny_spec(data, "plain"), tmp_path_factory.mktemp("spec") / "spec.toml")


@pytest.fixture(scope="module")
def series(spec_file, new_folder):
    """Two seeds in one folder, and what the command printed."""
    out = new_folder()
    run = coterie("run", spec_file, "--seeds", "3,5", "--out", out, "--json")
    assert run.returncode == 0, run.stderr
    return out, json.loads(run.stdout)


@pytest.fixture
def called(monkeypatch, capsys):
    """Call the command in this process; give its exit code, its output and the lines of its standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return end.value.code, said.out, said.err.splitlines()

    return call


def test_a_series_has_a_folder_per_seed_and_a_page_that_compares_them(series):
    """Each seed's run is whole; the page is named."""
    out, tables = series
    assert tables["files"] == [str(out / "comparison.html")]
    assert (out / "comparison.html").is_file()
    assert [group["seeds"] for group in tables["groups"]] == [[3, 5]]
    for run in tables["runs"]:
        rows = read_record(out / f"seed-{run['seed']}" / "record.jsonl").rows
        assert len(rows) == ROUNDS
        assert run["accuracy"] == rows[-1].accuracy
        assert (out / f"seed-{run['seed']}" / "report.html").is_file()


def test_the_same_command_goes_on_with_a_series(series, spec_file, called):
    """What has ended is not run again, a further seed is; other settings are refused."""
    out, _ = series
    before = (out / "seed-3" / "record.jsonl").read_bytes()
    code, printed, _ = called("run", spec_file, "--seeds", "3-4", "--out", out, "--json")
    assert code == 0
    assert [run["seed"] for run in json.loads(printed)["runs"]] == [3, 4]
    assert (out / "seed-3" / "record.jsonl").read_bytes() == before
    code, _, lines = called("run", spec_file, "--rounds", 2, "--seeds", "3", "--out", out)
    assert code == 2
    assert (
        lines[-1] == f"coterie: {out / 'seed-3'} holds a run with other settings; give another folder with --out"
    )


def test_the_page_of_a_run_is_made_again(series, called):
    """The page, deleted, comes back; every file written is named; the verdict is the summary's."""
    run = series[0] / "seed-5"
    (run / "report.html").unlink()
    code, printed, _ = called("report", run, "--json")
    assert code == 0
    told = json.loads(printed)
    files = ("figures/training.png", "figures/measures.png", "report.html", "summary.json")
    assert told.pop("files") == [str(run / name) for name in files]
    assert told == json.loads((run / "summary.json").read_text())
    assert (run / "report.html").is_file()
    code, printed, _ = called("report", run)
    assert code == 0
    for name in files:
        assert str(run / name) in printed.replace("\n", "")
    assert told["verdict"]["headline"] in printed


def test_runs_are_compared_on_one_page(series, called, tmp_path, monkeypatch):
    """Two runs by their folders, or by the folder that holds them, give a page and a table."""
    monkeypatch.chdir(tmp_path)
    out, _ = series
    code, printed, _ = called("report", out / "seed-3", out / "seed-5")
    assert code == 0
    assert "Report: comparison.html" in printed
    assert "accuracy over 2 seeds" in printed
    assert (tmp_path / "comparison.html").is_file()
    code, printed, _ = called("report", out, "--out", "all.html", "--json")
    assert code == 0
    assert json.loads(printed)["files"] == ["all.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nowhere"], "nowhere is not the folder of a run: it has no ledger.sqlite; check the path"),
        (["report", "{run}", "--out", "page.html"], "--out page.html is for a page that compares runs"),
        (["report", "{run}", "{run}"], "is given twice; name every run once"),
        (["report", "{all}", "--out", "page.pdf"], "page.pdf is not a .html file"),
        (["run", "--seeds", "4-1"], "--seeds is '4-1': give whole numbers (0,3,7) or a span (0-4)"),
        (["run", "--seeds", "1,1"], "--seeds is '1,1': it names a seed twice"),
        (["run", "--seeds", "1", "--seed", "2"], "--seeds 1 and --seed 2 both name seeds; give one of them"),
        (["run", "--seeds", "1", "--resume", "{run}"], "--resume goes on with a run as it was begun"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_one_line(series, called, tmp_path, monkeypatch, arguments, message):  # noqa: PLR0917
    """Exit code 2, one line that says what is wrong and what to do."""
    monkeypatch.chdir(tmp_path)
    places = {"run": series[0] / "seed-3", "all": series[0]}
    code, printed, lines = called(*(argument.format(**places) for argument in arguments))
    assert (code, printed, len(lines)) == (2, "", 1)
    assert message in lines[0]
