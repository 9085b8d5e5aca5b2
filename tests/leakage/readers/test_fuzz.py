"""Whatever a file holds, it is read or refused: no other error comes out."""

import random
from contextlib import suppress
from pathlib import Path

from coterie import UsageError, read_availability, read_log
from support.logs import PLATFORM_FORMS, written

GOLDEN = Path(__file__).parents[2] / "golden" / "files"
PIECES = [
    b",", b";", b"\t", b"\n", b'"', b"[", b"]", b"{", b"}", b":", b"null", b"true", b"-1", b"1e5", b"\xff", b"\0",
    b"", b"round", b"user", b"0", b"99999999999999999999", b"2026-05-01", b"x", b"1790000000", b"#",
    b"'", b" ", b"\r",
]  # fmt: skip


def test_changed_files_are_read_or_refused(tmp_path):
    """A thousand files with pieces cut out and put in end in a log or in a refusal."""
    forms = [form.encode() for form in PLATFORM_FORMS.values()]
    forms += [(GOLDEN / name).read_bytes() for name in ("log.jsonl", "log.parquet", "log.csv")]
    chance = random.Random(1)
    for _ in range(1000):
        content = bytearray(chance.choice(forms))
        for _ in range(chance.randint(1, 6)):
            start = chance.randrange(len(content) + 1)
            content[start : start + chance.choice([0, 0, 1, 1, 2, 5, 20])] = chance.choice(PIECES)
        path = written(tmp_path / "log", bytes(content))
        with suppress(UsageError):
            read_log(path, users=chance.choice([None, 3, 7]), rounds=chance.choice([None, 5]))
        with suppress(UsageError):
            read_availability(path)
