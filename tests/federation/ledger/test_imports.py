"""A ledger needs numpy and the standard library alone, so that a bare machine keeps one too."""

import subprocess
import sys

CODE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in "cryptography flint msgspec psycopg pyarrow rich scipy typer".split():
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
from coterie.errors import UsageError
from coterie.federation.ledger import Ledger
from coterie.federation.ledger.ledger import verify

with Ledger.create(sys.argv[1]) as ledger:
    ledger.enrol(["ana"])
    print(ledger.snapshot().waiting, verify(sys.argv[1]).sound)
try:
    Ledger.open("postgresql://host/db")
except UsageError as error:
    print(error)
"""


def test_nothing_else_is_imported(tmp_path):
    """With every other package blocked a ledger in a file works; PostgreSQL says what it needs."""
    run = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path / "ledger"], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.stderr == ""
    worked, refused = run.stdout.splitlines()
    assert worked == "1 True"
    assert refused.endswith("pip install 'coterie[postgres]', or use a file")
