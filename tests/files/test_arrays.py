"""Arrays in files: what was written comes back, and nothing else does."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from coterie import UsageError
from coterie.files import encode_arrays, map_array, read_arrays

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint8])
ARRAYS = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


@given(st.dictionaries(st.sampled_from(["mean", "users", "/row", "layers.0.weight"]), ARRAYS, min_size=1))
def test_what_was_written_comes_back(tmp_path_factory, given_arrays):
    """Values, shapes and types, by name; the digest is that of the file's bytes."""
    path = tmp_path_factory.mktemp("arrays") / "some.npz"
    data, digest = encode_arrays(given_arrays)
    path.write_bytes(data)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    read = read_arrays(path, digest)
    assert read.keys() == given_arrays.keys()
    for name, array in given_arrays.items():
        assert read[name].dtype == array.dtype
        assert np.array_equal(read[name], array, equal_nan=array.dtype.kind == "f")


def test_a_file_with_another_digest_is_refused(tmp_path):
    """One byte is enough; bytes with the right digest that are no arrays are refused too."""
    path = tmp_path / "some.npz"
    data, digest = encode_arrays({"mean": np.arange(3.0)})
    path.write_bytes(bytes(data[:-1]) + b"x")
    with pytest.raises(UsageError, match=r"some\.npz was changed since it was written"):
        read_arrays(path, digest)
    path.write_bytes(b"no arrays")
    with pytest.raises(UsageError, match=r"some\.npz is damaged"):
        read_arrays(path, hashlib.sha256(b"no arrays").hexdigest())


def test_a_mapped_array_is_the_one_that_was_written_and_the_file_stays(tmp_path):
    """What is written to the map is seen by nobody else."""
    path = tmp_path / "some.npz"
    data, digest = encode_arrays({"users": np.arange(5), "mean": np.arange(12.0).reshape(3, 4)})
    path.write_bytes(data)
    mapped = map_array(path, "mean")
    assert np.array_equal(mapped, np.arange(12.0).reshape(3, 4))
    mapped[:] = 0
    assert read_arrays(path, digest)["mean"].sum() == 66


def test_arrays_of_objects_are_refused():
    """Nothing is stored that only unpickling could read."""
    with pytest.raises(UsageError, match="an array of Python objects cannot be stored"):
        encode_arrays({"mean": np.array([object()])})


def test_a_file_holds_what_it_was_given_and_nothing_else(monkeypatch):
    """Older versions of numpy store every keyword as an array, also those that newer ones understand."""
    stored = []
    monkeypatch.setattr(np, "savez", lambda file, **named: stored.extend(named))
    encode_arrays({"mean": np.arange(3.0)})
    assert stored == ["mean"]
