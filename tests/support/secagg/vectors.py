"""The files of tests/vectors: lists of cases, with bytes in hex."""

import json
from pathlib import Path

import numpy as np
import pytest

from coterie.secagg.protocols import messages_from_client, messages_from_server
from coterie.secagg.wire.framing import blank

DECODE = {"client": messages_from_client.decode, "server": messages_from_server.decode}
"""How bytes from each role are decoded."""
FOLDER = Path(__file__).parents[2] / "vectors"
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))


class Case(dict):
    """One case; attributes give its bytes."""

    def __getattr__(self, name):
        return bytes.fromhex(self[name])


def load(name):
    """All cases of a file."""
    return [Case(case) for case in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))]


def cases(name, *, success):
    """All cases of a file that must be accepted, or all that must be refused."""
    chosen = [case for case in load(name) if case["success"] is success]
    ids = [f"{number}: {case['name']}".encode("ascii", "replace").decode() for number, case in enumerate(chosen)]
    return pytest.mark.parametrize("case", chosen, ids=ids)


def words(keystream, size, dtype=np.uint32):
    """The next bytes of a keystream."""
    buffer = np.empty(size // np.dtype(dtype).itemsize, dtype=dtype)
    keystream.words_into(buffer)
    return buffer.tobytes()


def check_message(case):
    """Decode a message's bytes, and demand the same bytes when it is encoded again."""
    message, tail = DECODE[case["sender"]](case.data)
    assert type(message).__name__ == case["kind"]
    assert bytes(tail) == case.tail
    data, room = blank(message, len(case.tail))
    room[:] = case.tail
    assert bytes(data) == case.data
