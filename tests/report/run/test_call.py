"""`coterie.run`: an experiment in one call."""

import pytest

import coterie
from support.experiment.tiny import ROUNDS, data, new_folder, tiny_spec

__all__ = ["data", "new_folder"]  # fixtures


def test_a_spec_becomes_a_result_and_a_folder(data, new_folder):
    """The call trains, writes the report, and gives back what the folder holds; it can be taken up again."""
    rows, out = [], new_folder()
    result = coterie.run(tiny_spec(data, "plain"), out=out, workers=1, progress=rows.append)
    assert len(rows) == len(result.record.rows) == ROUNDS
    assert (out / "report.html").is_file()
    again = coterie.run(resume=out, workers=1)
    assert again.record.rows == result.record.rows
    with pytest.raises(coterie.UsageError):
        coterie.run(tiny_spec(data, "plain"), out=out)
