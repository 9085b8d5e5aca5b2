"""`coterie device`: what a device remembers, without its secrets, and its owner's override."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Json, help_without_command
from coterie.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.federation.device_file import DeviceFile
    from coterie.secagg import Membership

app = typer.Typer(
    help="Look into a device's file, or let it leave its batch.\n\nFILE is what a device keeps for itself: its "
    "identity, and for every data scope its batch and the last round that it sealed.",
    callback=help_without_command,
    invoke_without_command=True,
    rich_markup_mode=None,
)

COST = (
    "The device then accepts a charter that splits its batch. Whoever has the sums of old and new batches can "
    "subtract them: the privacy level is that of the groups that were always together, and can be 1."
)

File = Annotated[Path | None, typer.Argument(metavar="FILE", help="The device's file.", show_default=False)]


@app.command()
def show(file: File = None, json_: Json = False) -> None:
    """Show what a device remembers, without its secrets.

    Of every data scope: its batch, rounds, weight and overrides.

    Examples:

      coterie device show phone.sqlite
    """
    with _open_device(file) as device:
        scopes = [_scope_record(_membership(device, scope), scope) for scope in device.scopes]
    if json_:
        typer.echo(json.dumps({"file": str(file), "scopes": scopes}))
        return
    if not scopes:
        typer.echo(f"{file} was never in a batch.")
    for each in scopes:
        batch = (
            f"in a batch of {len(each['members'])} (T = {each['privacy']}, {each['inner']})"
            if each["members"]
            else "in no batch"
        )
        sealed = "never sealed" if each["sealed_round"] is None else f"sealed round {each['sealed_round']} last"
        typer.echo(f"{each['scope']}: {batch}, {sealed}, weight {each['weight'] or 'not fixed yet'}")
        if each["bound_to"]:
            typer.echo(f"  bound to stay with: {', '.join(each['bound_to'])}")
        if each["overrides"]:
            typer.echo(f"  its owner let it leave a batch {each['overrides']} times")


@app.command()
def override(
    file: File = None,
    scope: Annotated[str, typer.Option(help="The data scope whose batch the device may leave (required).")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it: the cost is understood.")] = False,
) -> None:
    """Let a device leave the batch that it has sealed in.

    Only its owner should, and no message can. Without this, a device accepts a further charter only if that keeps
    its whole batch together. With it, rounds of the old and of the new batch together can show sums of fewer than
    T users, down to one. Weight, rounding secret and the last round stay. The federation's ledger must be told
    too, so that audits count it.

    Examples:

      coterie device override phone.sqlite --scope keyboard --yes
    """
    if not scope:
        raise UsageError("say which data scope: --scope NAME, as coterie device show prints it")
    with _open_device(file) as device:
        if scope not in device.scopes:
            known = ", ".join(device.scopes) or "none"
            raise UsageError(f"{file} has no scope {scope!r}; it has {known}")
        membership = _membership(device, scope)
        bound = _scope_record(membership, scope)["bound_to"]
        if bound and not yes:
            raise UsageError(f"{COST} {file} is bound to {', '.join(bound)}. If that is meant, add --yes")
        membership.override(scope)
    typer.echo(f"{file} may leave its batch in {scope}. {COST}", err=True)


@contextmanager
def _open_device(file: Path | None) -> Iterator[DeviceFile]:
    from coterie.federation.device_file import DeviceFile

    if file is None:
        raise UsageError("say which device: the path of its file")
    if file.is_dir():
        raise UsageError(f"{file} is a folder; give the file of one device (a run has its users' in devices/)")
    with DeviceFile.open(file) as device:
        yield device


def _membership(device: DeviceFile, scope: str) -> Membership:
    """Return the door to a device's record; it forms no batches, so it needs no way to tell who is real."""
    from coterie.secagg import DeviceConfiguration, IdentityKey, Membership

    identity = IdentityKey.from_bytes(device.identity)
    return Membership("", identity, DeviceConfiguration(scopes=frozenset({scope})), lambda *_: False, device)


def _scope_record(membership: Membership, scope: str) -> dict[str, Any]:
    with membership.record(scope) as record:
        charter = record.in_force if record.charter else None
        sealed_under = record.sealed_under
        return {
            "scope": scope,
            "charter": None if charter is None else charter.digest.hex(),
            "privacy": None if charter is None else charter.privacy,
            "inner": None if charter is None else charter.inner,
            "members": [] if charter is None else [member.user for member in charter.members],
            "sealed_round": None if record.sealed_round < 0 else record.sealed_round,
            "bound_to": [] if sealed_under is None else [member.user for member in sealed_under.members],
            "weight": record.weight or None,
            "overrides": record.overrides,
        }
