"""The client: the app of the tests, with its mod."""

from pathlib import Path

from support.flower.app import app as make_app
from support.flower.app import mod

app = make_app(mod(Path("nowhere")))  # each node's own configuration names its device
