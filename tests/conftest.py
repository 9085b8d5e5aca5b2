"""What all tests share: how much is fuzzed."""


def pytest_addoption(parser):
    """Let `--fuzz 1000000` try more messages than a quick run does, and `--fuzz-seed` others."""
    group = parser.getgroup("coterie")
    group.addoption("--fuzz", type=int, default=100_000, metavar="N", help="messages that the fuzzer tries")
    group.addoption("--fuzz-seed", type=int, default=1, metavar="SEED", help="which messages: 1 unless told")


def pytest_report_header(config):
    """Say which messages the fuzzer tries, so that they can be tried again."""
    return f"fuzz: {config.getoption('--fuzz')} messages, --fuzz-seed {config.getoption('--fuzz-seed')}"
