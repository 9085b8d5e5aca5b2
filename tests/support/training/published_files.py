"""Small files in the published formats, for tests."""

import io
import struct
import tarfile

import numpy as np

PIXELS = 3072


def idx(array):
    """An array of bytes as an IDX file."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def cifar_examples(count, classes, seed):
    """Random pixels and labels."""
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, (count, PIXELS), dtype=np.uint8),
        rng.integers(0, classes, count, dtype=np.uint8),
    )


def cifar10_binary(pixels, labels):
    """CIFAR-10's records."""
    return np.concatenate((labels[:, None], pixels), axis=1).tobytes()


def cifar100_binary(pixels, labels):
    """CIFAR-100's records, with a coarse label that must not be taken for the fine one."""
    return np.concatenate((labels[:, None] // 5, labels[:, None], pixels), axis=1).tobytes()


def cifar_pickle(pixels, labels, key=b"labels", kind=b"u1", order=b"\x89"):
    """A dictionary as Python 2 and the NumPy of its day pickled it, opcode by opcode."""
    rows, columns = pixels.shape
    raw = pixels.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01" + _integer(rows) + _integer(columns) + b"\x86"
        b"cnumpy\ndtype\nU" + bytes([len(kind)]) + kind + b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb" + order + b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )  # fmt: skip
    listed = b"](" + b"".join(_integer(label) for label in labels.tolist()) + b"e"
    return b"\x80\x02}(U\x0bbatch_labelU\x07a batch" + _text(key) + listed + _text(b"data") + array + b"u."


def archive(files):
    """A .tar.gz of files, given by their paths."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _integer(value):
    return b"J" + struct.pack("<i", value)


def _text(value):
    return b"U" + bytes([len(value)]) + value
