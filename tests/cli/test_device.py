"""`coterie device`: an owner sees what the device remembers, and can let it leave its batch, knowing the cost."""

import json

import pytest

from coterie.federation.device_file import DeviceFile
from coterie.secagg import IdentityKey, Membership, SealedClient, TrustServerForIdentities, found_batch, run_round
from coterie.secagg import sealed_round as server_of
from support.cli.command import coterie
from support.secagg.batches import SCOPE, configuration, rules, terms, updates

NAMES = ["ana", "bob", "cas"]


@pytest.fixture
def devices(tmp_path):
    """Three devices on the disk that have sealed a round together, by name."""
    clients, files = {}, {}
    for name in NAMES:
        files[name] = tmp_path / f"{name}.sqlite"
        identity = IdentityKey.generate()
        store = DeviceFile.create(files[name], identity.to_bytes())
        clients[name] = SealedClient(
            Membership(name, identity, configuration(), TrustServerForIdentities(), store)
        )
    charter = found_batch(rules(privacy=3), clients.values())
    given = updates(NAMES)
    run_round(server_of([charter], 4, terms()), clients, lambda user, task: given[user])
    return files


def test_show_tells_batch_rounds_and_weight_and_no_secret(devices):
    """For a person and as JSON; the identity and the chain keys are in neither."""
    said = coterie("device", "show", devices["ana"])
    assert (said.returncode, said.stderr) == (0, "")
    assert f"{SCOPE}: in a batch of 3 (T = 3, open), sealed round 4 last, weight 1" in said.stdout
    assert "bound to stay with: ana, bob, cas" in said.stdout
    record = json.loads(coterie("device", "show", devices["ana"], "--json").stdout)
    (scope,) = record["scopes"]
    assert (scope["members"], scope["sealed_round"], scope["overrides"]) == (NAMES, 4, 0)
    with DeviceFile.open(devices["ana"]) as device:
        assert device.identity.hex() not in json.dumps(record)


def test_an_override_asks_for_yes_and_says_what_it_costs(devices):
    """Without --yes nothing changes; with it the device is bound no more, and both say what that means."""
    refused = coterie("device", "override", devices["bob"], "--scope", SCOPE)
    assert refused.returncode == 2
    assert "the privacy level is that of the groups that were always together, and can be 1" in refused.stderr
    assert "bound to ana, bob, cas. If that is meant, add --yes" in refused.stderr
    done = coterie("device", "override", devices["bob"], "--scope", SCOPE, "--yes")
    assert (done.returncode, done.stdout) == (0, "")
    assert "may leave its batch in keyboard" in done.stderr
    (scope,) = json.loads(coterie("device", "show", devices["bob"], "--json").stdout)["scopes"]
    assert (scope["bound_to"], scope["overrides"], scope["sealed_round"], scope["weight"]) == ([], 1, 4, 1)
    again = coterie("device", "override", devices["bob"], "--scope", SCOPE, "--yes")
    assert (again.returncode, "nothing binds it" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "missing"], "there is no such file"),
        (["show"], "say which device"),
        (["override", "{file}"], "say which data scope"),
        (["override", "{file}", "--scope", "photos", "--yes"], "has no scope 'photos'; it has keyboard"),
    ],
)
def test_bad_input_ends_in_one_line_and_exit_code_2(devices, arguments, message):
    """The line says what to do; no traceback."""
    said = coterie("device", *(argument.format(file=devices["cas"]) for argument in arguments))
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (2, "", 1)
    assert message in said.stderr


def test_a_folder_is_not_a_device(tmp_path):
    """The path of a run's folder is refused in words that say where the devices are."""
    run = coterie("device", "show", tmp_path)
    assert run.returncode == 2
    assert "is a folder; give the file of one device" in run.stderr
