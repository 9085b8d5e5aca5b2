"""Named arrays as one row of floats, and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from coterie.errors import UsageError
from coterie.secagg.crypto.quantiser import Layout

arrays = stn.arrays(
    st.sampled_from([np.float16, np.float32, np.float64]),
    stn.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements=st.floats(-100, 100, width=16),
)


@given(st.dictionaries(st.text(max_size=4), arrays, max_size=5))
def test_named_arrays_come_back(named):
    """Flat and back, every array has its name, shape, dtype and values; the order of a mapping means nothing."""
    layout = Layout.of(named)
    flat = layout.flatten(dict(reversed(named.items())))
    assert flat.shape == (layout.dimension,) == (sum(array.size for array in named.values()),)
    assert flat.dtype == (np.float64 if any(a.dtype == np.float64 for a in named.values()) else np.float32)
    restored = layout.restore(flat)
    assert list(restored) == list(named)
    for name, array in named.items():
        assert restored[name].dtype == array.dtype
        assert restored[name].shape == array.shape
        assert np.array_equal(restored[name], array)


@given(arrays)
def test_a_single_array_comes_back(array):
    """An array without a name comes back as one."""
    layout = Layout.of(array)
    restored = layout.restore(layout.flatten(array).astype(np.float64))
    assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
    assert np.array_equal(restored, array)
    assert Layout.of({"a": array}) != layout


def test_a_single_array_is_not_copied():
    """A contiguous array is used where it lies; one that is not is copied into a row."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.shares_memory(Layout.of(array).flatten(array), array)
    turned = array.T
    assert Layout.of(turned).flatten(turned).tolist() == [0, 3, 1, 4, 2, 5]


def test_arrays_of_another_layout_are_refused():
    """Another name, shape, dtype or number of values is refused, and so is what is no float."""
    good = {"w": np.zeros((2, 2), dtype=np.float32), "b": np.zeros(2, dtype=np.float32)}
    layout = Layout.of(good)
    for wrong in (
        {"w": good["w"]},
        {"w": good["w"], "c": good["b"]},
        {**good, "b": np.zeros(3, dtype=np.float32)},
        {**good, "b": np.zeros(2)},
        good["w"],
    ):
        with pytest.raises(UsageError, match="these arrays are"):
            layout.flatten(wrong)
    with pytest.raises(UsageError, match="for 6 values"):
        layout.restore(np.zeros(5))
    with pytest.raises(UsageError, match="steps is of int64; only arrays of float16"):
        Layout.of({"w": good["w"], "steps": np.zeros(1, dtype=np.int64)})
    with pytest.raises(UsageError, match="the array is of >f4"):
        Layout.of(np.zeros(1, dtype=">f4"))
