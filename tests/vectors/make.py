"""Writes the test vectors beside this file, from the written specifications alone: it never imports Coterie.

A vector file is a list of flat objects. Bytes are hex, numbers are numbers; `success` says whether the case must
be accepted, and the name of a refused one which rule it breaks. Published vectors stand in `published.txt`, and
are computed once more before they are written.

    python tests/vectors/make.py [folder]
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the interpreter may run isolated

import batch
import coded
import pairwise
import rounds
import standards
import wire

FILES = {**standards.FILES, **batch.FILES, **rounds.FILES, **wire.FILES, **pairwise.FILES, **coded.FILES}


def main(folder):
    """Write all files."""
    for name, cases in FILES.items():
        text = json.dumps(list(cases()), indent=1)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
