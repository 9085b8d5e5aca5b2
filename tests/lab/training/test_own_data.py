"""Own data is taken as it is, and what is wrong with it is said with the user and the file."""

import io

import numpy as np
import pytest
import torch

from coterie import UsageError
from coterie.lab.training import from_function, read_folder

ANN = (np.arange(2 * 3, dtype=np.float32).reshape(2, 3), np.array([0, 2]))
BEN = (np.full((1, 3), 7, dtype=np.float32), np.array([1]))
TEST = (np.zeros((2, 3), dtype=np.float32), np.array([1, 0]))
GREY = np.full((2, 1, 4, 4), 255, dtype=np.uint8)


def save(folder, **users):
    """Write a file per user."""
    for name, (images, labels) in users.items():
        np.savez(folder / f"{name}.npz", images=images, labels=labels)
    return folder


def npy(array):
    """An array as a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_a_folder_becomes_the_users_data(tmp_path):
    """Users come in the order of their names, each with its examples in their order; the test set is its own."""
    user_data = read_folder(save(tmp_path, ben=BEN, ann=ANN, test=TEST))
    assert user_data.names == ("ann", "ben")
    assert user_data.sizes.tolist() == [2, 1]
    assert user_data.classes == 3
    assert torch.equal(user_data.images[user_data.of(0)], torch.tensor(ANN[0]))
    assert torch.equal(user_data.images[user_data.of(1)], torch.tensor(BEN[0]))
    assert user_data.labels.tolist() == [0, 2, 1]
    assert user_data.test.labels.tolist() == [1, 0]
    assert torch.equal(user_data.to("cpu").images, user_data.images)


def test_a_function_gives_the_same_data(tmp_path):
    """What a function returns is taken as the files' content is."""
    folder = read_folder(save(tmp_path, ann=ANN, ben=BEN, test=TEST))
    function = from_function([ANN, BEN].__getitem__, users=2, test=TEST)
    for mine, other in ((folder.train, function.train), (folder.test, function.test)):
        assert torch.equal(mine.images, other.images)
        assert torch.equal(mine.labels, other.labels)
    assert function.partition == folder.partition
    assert function.names is None


def test_bytes_are_scaled_and_nothing_else(tmp_path):
    """0 … 255 become 0 … 1; no mean of the users' data goes into it."""
    data = (GREY, np.array([0, 1]))
    user_data = read_folder(save(tmp_path, a=data, test=data))
    assert user_data.images.dtype == torch.uint8
    assert torch.equal(user_data.to("cpu").images, torch.ones(2, 1, 4, 4))


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_floats_become_float32(kind):
    """Training is in float32 whatever the files' precision."""
    user_data = from_function(lambda _: (ANN[0].astype(kind), ANN[1]), users=1, test=TEST)
    assert user_data.images.dtype == torch.float32
    assert torch.equal(user_data.images, torch.tensor(ANN[0]))


def test_classes_are_the_largest_label_plus_one_unless_given():
    """Labels of users and of the test set count, and a single class is still a question of two."""
    assert from_function(lambda _: BEN, users=1, test=(TEST[0], [4, 0])).classes == 5
    assert from_function(lambda _: BEN, users=1, test=TEST, classes=10).classes == 10
    assert from_function(lambda _: (BEN[0], [0]), users=1, test=(TEST[0], [0, 0])).classes == 2


IMAGES, LABELS = ANN
NAN = np.where(np.arange(6).reshape(2, 3) == 4, np.nan, 0.0)
BAD = [
    ((IMAGES[:0], LABELS[:0]), "there are no examples; give at least one, or leave the user out"),
    ((IMAGES[:1], LABELS), "there are 1 images and 2 labels"),
    ((IMAGES[:, 0], LABELS), r"one example per row, not float32 of shape \(2,\)"),
    ((IMAGES, LABELS[:, None]), r"labels must be one-dimensional int64, not int64 of shape \(2, 1\)"),
    ((IMAGES, LABELS / 2), "labels are float64; give integers"),
    ((IMAGES, ["a", "b"]), "labels are <U1"),
    ((IMAGES, [0, -1]), "example 1 has the label -1; labels of 3 classes are 0 … 2"),
    ((IMAGES, [3, 0]), "example 0 has the label 3; labels of 3 classes"),
    (
        (IMAGES[:, :2], LABELS),
        r"Examples\(2 of 2, float32\), but in .* Examples\(. of 3, float32\); make them alike",
    ),
    ((GREY, LABELS), r"there are Examples\(2 of 1 × 4 × 4, uint8\), but in"),
    ((GREY[:, 0], LABELS), r"uint8 images must be N × channels × height × width, not uint8 of shape \(2, 4, 4\)"),
    ((IMAGES.astype(np.int64), LABELS), "images are int64; give uint8 or floating-point"),
    ((IMAGES > 0, LABELS), "images are bool"),
    ((NAN, LABELS), "image 1 has a value that is not a finite number"),
    ((IMAGES + np.inf, LABELS), "image 0 has a value that is not a finite number"),
]


@pytest.mark.parametrize(("data", "message"), BAD)
def test_bad_data_is_refused_with_the_user(tmp_path, data, message):
    """Each refusal names the file, or the user of the function, and says what to give."""
    with pytest.raises(UsageError, match=rf"ben\.npz:? .*{message}"):
        read_folder(save(tmp_path, ann=ANN, ben=data, test=TEST), classes=3)
    with pytest.raises(UsageError, match=f"^user 1:? .*{message}"):
        from_function([ANN, data].__getitem__, users=2, test=TEST, classes=3)
    with pytest.raises(UsageError, match=f"^the test set:? .*{message}"):
        from_function([ANN, BEN].__getitem__, users=2, test=data, classes=3)


def test_a_negative_label_is_refused_also_without_classes():
    """Where the classes are not given, labels still start from 0."""
    with pytest.raises(UsageError, match="user 0: example 1 has the label -1; labels of 2 classes are 0"):
        from_function(lambda _: (IMAGES, [0, -1]), users=1, test=TEST)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b""), r"ann\.npz is not a readable .npz file"),
        (lambda path: path.write_bytes(b"PK\x03\x04 no zip"), r"ann\.npz is not a readable .npz file"),
        (lambda path: path.write_bytes(path.read_bytes()[:300]), r"ann\.npz is not a readable .npz file"),
        (lambda path: path.write_bytes(b"\x80\x04K\x01."), r"ann\.npz is not a readable .npz file"),
        (lambda path: np.savez(path, images=IMAGES), r"ann\.npz does not hold 'images' \(or 'features'\) and"),
        (
            lambda path: np.savez(path, features=np.zeros((2, 3, 1)), labels=LABELS),
            r"ann\.npz: features are float64 of shape \(2, 3, 1\); give numbers, rows × columns",
        ),
        (lambda path: np.savez(path, images=np.array([{}, {}]), labels=LABELS), r"ann\.npz is not a readable"),
        (lambda path: path.write_bytes(npy(IMAGES)), r"ann\.npz is not a readable"),
        (lambda path: (path.unlink(), path.mkdir()), r"ann\.npz cannot be read: it is a folder"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, write, message):
    """Broken files, other files, and pickled objects (which are never run) are refused by name."""
    save(tmp_path, ann=ANN, test=TEST)
    write(tmp_path / "ann.npz")
    with pytest.raises(UsageError, match=message):
        read_folder(tmp_path)


def test_a_folder_must_hold_users_and_a_test_set(tmp_path):
    """No folder, no user, no test set: each is said."""
    with pytest.raises(UsageError, match="there is no such file"):
        read_folder(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no user's data"):
        read_folder(save(tmp_path, test=TEST))
    (tmp_path / "test.npz").unlink()
    with pytest.raises(
        UsageError, match=r"has no test\.npz, the examples that the model is tested with; put them"
    ):
        read_folder(save(tmp_path, ann=ANN))


@pytest.mark.parametrize(("users", "classes", "message"), [(0, None, "users is 0"), (1, 1, "classes is 1")])
def test_impossible_numbers_are_refused(users, classes, message):
    """At least one user and two classes."""
    with pytest.raises(UsageError, match=message):
        from_function(lambda _: BEN, users=users, test=TEST, classes=classes)
