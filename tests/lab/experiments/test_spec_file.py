"""A written spec is the spec, and says of every field what it means."""

import tomllib

import pytest

from coterie.lab.experiments.spec import Spec, commented_spec, spec_fields

CHANGED = {
    "seed": 3,
    "data.source": 'a "quoted" path\\with κ',
    "training.schedule": [[400, 0.4], [800, 1e-3]],
    "selection.dropout": [],
    "aggregation.sealed": False,
}


@pytest.mark.parametrize("spec", [Spec(), Spec().changed(CHANGED | {"selection.dropout": "by-label"})])
def test_what_is_written_is_read_again(spec):
    """Every field stands in the file, in its table, with its value; a comment of whole words is above it."""
    text = commented_spec(spec)
    assert Spec.from_tables(tomllib.loads(text)) == spec
    assert max(map(len, text.splitlines())) <= 115
    lines = text.splitlines()
    for dotted, _, meaning in spec_fields(spec):
        name = dotted.rpartition(".")[2]
        assert len(meaning) > 10
        assert meaning.endswith(".")
        assert any(
            line.startswith(f"{name} = ") and lines[place - 1].startswith("# ") for place, line in enumerate(lines)
        )
