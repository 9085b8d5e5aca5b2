"""A spec is what its file says, and nothing else."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import UsageError
from coterie.lab.experiments.spec import Spec
from coterie.secagg import DEFAULT_PROTOCOL


def test_a_spec_comes_back_from_its_own_tables():
    """The tables of a spec, also after JSON, make the same spec again."""
    spec = Spec().changed(
        {"training.schedule": [[400, 0.4], [800, 0.4]], "selection.dropout": [0.1, 0.5], "seed": 3}
    )
    assert Spec.from_tables(json.loads(json.dumps(spec.tables()))) == spec
    assert spec.training.schedule == ((400, 0.4), (800, 0.4))


def test_a_run_takes_sums_by_the_default_protocol_unless_told():
    """A spec names it as text, as specs are made without the cryptography too; it is the same protocol."""
    assert Spec().aggregation.protocol == DEFAULT_PROTOCOL
    assert not Spec().aggregation.plain


def test_a_file_changes_only_what_it_says(tmp_path):
    """What a TOML file does not say keeps its default; whole numbers serve where numbers are wanted."""
    file = tmp_path / "spec.toml"
    file.write_text('seed = 5\n[training]\nrounds = 7\nlearning_rate = 1\n[data]\nsource = "mnist"\n')
    spec = Spec.read(file)
    assert spec == Spec().changed(
        {"seed": 5, "training.rounds": 7, "training.learning_rate": 1.0, "data.source": "mnist"}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[trainig]\nrounds = 1", "there is no trainig in a spec; did you mean training?"),
        ("[training]\nround = 1", "there is no training.round in a spec; did you mean training.rounds?"),
        ("[training]\nxyz = 1", "there is no training.xyz in a spec; known are model, epochs"),
        ("[training]\nrounds = 'ten'", "training.rounds is 'ten'; give a whole number"),
        ("[training]\nrounds = true", "training.rounds is True; give a whole number"),
        ("[training]\nrounds = 0", "the number of rounds is 0"),
        ("training = 5", "training is 5; it must be a table"),
        ("[selection]\ndropout = 0.1", "selection.dropout is 0.1; give a list"),
        ("[selection]\ndropout = [1.5]", "dropout"),
        ("[selection]\ndropout = 'often'", "selection.dropout is 'often'; give one of by-label"),
        ("[data]\norder = 'any'", "data.order is 'any'; give one of sorted, random"),
        ("[selection]\nlost = 2.0", "lost mid-round is 2.0"),
        ("[selection]\nspare = -1", "spare batches is -1"),
        ("[training]\nschedule = [[1]]", "training.schedule has 1 values; give 2"),
        ("[aggregation]\nprotocol = 'secagg++'", "give one of plain, open, secagg, secagg+"),
        ("[aggregation]\nword_bits = 8", "aggregation.word_bits is 8; give one of 0, 16, 32"),
        ("[aggregation]\nword_bits = false", "aggregation.word_bits is False; give one of 0, 16, 32"),
        ("[aggregation]\nclip = 0", "clip is 0.0"),
        ("[aggregation]\nprotocol = 'open'\nsealed = false", "open has no privacy but its seal"),
        ("[data]\nusers = 5", "K = 20 users per round is above N = 5"),
        ("seed = -1", "the seed is -1"),
        ("seed = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_what_to_do(tmp_path, text, message):
    """Every mistake in a file is one line that names the file, the key and the value."""
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        Spec.read(file)
    assert message in str(caught.value)
    assert "bad.toml" in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    )
)
def test_no_tables_raise_anything_but_a_usage_error(value):
    """Whatever stands in a file, it is a spec or a UsageError."""
    for key in ("data", "selection", "training", "aggregation", "seed", "keep_aggregates"):
        with contextlib.suppress(UsageError):
            Spec.from_tables({key: value})
