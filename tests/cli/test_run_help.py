"""`coterie run --help` names the inner protocols that there are, with the numbers that follow from γ and δ."""

from coterie.secagg import PROTOCOLS, Parameters
from support.cli.command import coterie


def test_help_lists_every_protocol_with_its_thresholds():
    """What the help says of a protocol comes from the registry."""
    shown = " ".join(coterie("run", "--help").stdout.split())
    for name, protocol in PROTOCOLS.items():
        assert f"{name} {protocol.server_sees}" in shown
        for what, number in protocol.thresholds(100, Parameters()).items():
            assert f"{number} {what}" in shown


def test_thresholds_of_lightsecagg():
    """t, U and e of the code, and how many must agree, at the default γ and δ."""
    numbers = PROTOCOLS["lightsecagg"].thresholds(100, Parameters())
    assert list(numbers.values()) == [61, 20, 60, 5]
