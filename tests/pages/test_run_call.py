"""`coterie.run`: an experiment in one call."""

import json

import numpy as np
import pytest

import coterie
from support.experiments.tiny import ROUNDS, data, new_folder, tiny_spec

__all__ = ["data", "new_folder"]  # fixtures


def test_a_spec_becomes_a_result_and_a_folder(data, new_folder):
    """The call trains, writes the report, and gives back what the folder holds; it can be taken up again."""
    rows, out = [], new_folder()
    result = coterie.run(tiny_spec(data, "plain"), out=out, workers=1, progress=rows.append)
    assert len(rows) == len(result.record.rows) == ROUNDS
    assert (out / "report.html").is_file()
    assert json.loads((out / "summary.json").read_text()) == result.summary()
    assert repr(result).startswith(f"RunResult('{out}', 4 rounds, strong=1, accuracy=0.")
    assert result.verdict.words.headline in result._repr_html_()
    assert [result.columns["round"].tolist(), np.isnan(result.columns["training_loss"]).tolist()] == [
        [row.round for row in rows],
        [row.training_loss is None for row in rows],
    ]
    again = coterie.run(resume=out, workers=1)
    assert again.record.rows == result.record.rows
    with pytest.raises(coterie.UsageError):
        coterie.run(tiny_spec(data, "plain"), out=out)


@pytest.mark.parametrize(
    ("protocol", "changes"),
    [
        ("plain", {}),
        ("open", {}),
        ("secagg+", {}),
        ("secagg", {"aggregation.sealed": False}),
        ("secagg", {"aggregation.sealed": False, "selection.lost": 0.2}),
        ("secagg", {"aggregation.sealed": False, "selection.scheme": "random"}),
    ],
)
def test_a_run_and_its_audit_have_one_voice(data, new_folder, protocol, changes):
    """`coterie audit RUN` has the headline, the tone and the level of the run's own page and console."""
    result = coterie.run(tiny_spec(data, protocol).changed(changes), out=new_folder(), workers=1)
    ours, theirs = result.verdict, coterie.audit(result.path)
    assert (ours.words.headline, ours.words.tone) == (theirs.words.headline, theirs.words.tone)
    assert ours.words.figures[0] == theirs.words.figures[0]
    assert ours.strong == theirs.strong
    assert ours.weak.low <= theirs.weak.low <= theirs.weak.high <= ours.weak.high


def test_the_tables_of_a_spec_are_one(data, new_folder):
    """A dictionary is read as a spec's file is, and refused as that is."""
    tables = tiny_spec(data, "plain").tables()
    result = coterie.run(tables, rounds=1, out=new_folder(), workers=1)
    assert (len(result.record.rows), result.log.users) == (1, 12)
    with pytest.raises(coterie.UsageError, match="rounds"):
        coterie.run({"training": {"rounds": "x"}})


def test_keywords_change_a_spec_as_options_do(data, new_folder):
    """A folder of data says how many users it has; a keyword that is none, or has no effect, is refused."""
    options = {"per_round": 6, "scheme": "T2", "aggregation": "plain", "rounds": 1, "workers": 1}
    result = coterie.run(data=str(data), out=new_folder(), **options)
    assert (result.log.users, len(result.columns["round"])) == (12, 1)
    for wrong, message in (
        ({"learning_rat": 1}, "a run has no option 'learning_rat'; did you mean learning_rate?"),
        ({"data": str(data), "partition": "iid", **options}, "has no effect on"),
        ({"resume": result.path, "seed": 3}, "a run is resumed as it was begun"),
    ):
        with pytest.raises(coterie.UsageError, match=message):
            coterie.run(**wrong)
