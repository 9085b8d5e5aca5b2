"""Codes and coded shares are those that a script makes from the written protocol alone (tests/vectors)."""

import numpy as np

from coterie.secagg.batch.parameters import Parameters
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.protocols.lightsecagg.coding import Code
from support.secagg.vectors import cases


@cases("coded", success=True)
def test_coded_shares_are_those_of_the_vectors(case):
    """The code follows from roster and parameters, and the shares from mask and noise."""
    code = Code.of(case["users"], Parameters(case["colluders"], case["losses"]))
    assert (code.privacy, code.needed) == (case["privacy"], case["needed"])
    shares = code.encode(np.frombuffer(case.mask, dtype="<u4"), Seed(case.noise))
    assert shares.astype("<u4").tobytes() == case.shares
