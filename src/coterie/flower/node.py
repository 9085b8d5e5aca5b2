"""A device: its folder, with identity, memory and a log of what it refused, and what its owner allows."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from flwr.app import UserConfigValue

from coterie.errors import UsageError
from coterie.federation.device_file import DeviceFile
from coterie.files import reading, writing
from coterie.secagg import DeviceConfiguration, DurableClient, IdentityKey, Membership, VerifyMember

MEMORY, ROUND, REFUSALS = "device.sqlite", "round.sqlite", "refusals.log"
"""The files in a device's folder: what it must never forget, the round that it is in, and what it refused."""

_WAIT = 60.0  # seconds for another process of the same device
_LARGEST_LOG = 1 << 20  # bytes; then a new one is begun, so that a server cannot fill the disk


class PinnedMembers:
    """The users and identity keys of a JSON file, and nobody else: {"user": "identity key in hexadecimal", …}.

    The file comes to the device on a way that the server has no hand in.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        with reading(self._path):
            text = self._path.read_text(encoding="utf-8")
        try:
            entries = json.loads(text)
            self._keys = {str(user): bytes.fromhex(key) for user, key in entries.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise UsageError(
                f'{path} does not list members ({error}); write {{"user": "identity key in hexadecimal"}}'
            ) from None

    def __call__(self, user: str, identity: bytes) -> bool:
        """Accept who is in the file, with that key."""
        return self._keys.get(user) == identity


@dataclass(frozen=True)
class Device:
    """A device that takes part through Flower: a folder, a user's name, and what its owner allows."""

    folder: Path
    user: str
    """A name that the owner chose, or empty: then it follows from the identity key."""
    configuration: DeviceConfiguration
    verify_member: VerifyMember

    @classmethod
    def of_node(
        cls,
        node: Mapping[str, UserConfigValue],
        app: DeviceConfiguration,
        verify_member: VerifyMember | None,
        simulated: Path | None,
    ) -> "Device":
        """Return the device of a node; what its own configuration says goes before what the app says."""
        folder, partition = str(node.get("coterie-device", "")), node.get("partition-id")
        if folder:
            place, user = Path(folder), str(node.get("coterie-user", ""))
        elif simulated is not None and partition is not None:
            place, user = simulated / f"partition-{partition}", f"partition-{partition}"
        else:
            raise UsageError(
                "this node has no folder for its keys: start the SuperNode with coterie-device=FOLDER in its "
                "--node-config, or give the mod simulated_devices=FOLDER for a simulation"
            )
        return cls(
            place.expanduser(),
            user,
            _node_configuration(node, app),
            _members_from(verify_member, str(node.get("coterie-members", ""))),
        )

    def client(self) -> DurableClient:
        """Return the user's side of the protocol, which remembers everything in the folder."""
        if (self.folder / ROUND).exists() and not (self.folder / MEMORY).exists():  # made in the other order
            raise UsageError(
                f"{self.folder} has lost {MEMORY}, and with it what this device has sealed; put nothing old back: "
                "remove the folder, and the device begins as a new user"
            )
        memory, rounds = self._open(MEMORY), self._open(ROUND)
        identity = IdentityKey.from_bytes(memory.identity)
        user = self.user or user_of(identity.public)
        membership = Membership(user, identity, self.configuration, self.verify_member, memory)
        return DurableClient(membership, rounds)

    def _open(self, name: str) -> DeviceFile:
        path = self.folder / name
        with writing(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            try:
                DeviceFile.create(path, IdentityKey.generate().to_bytes()).close()
            except UsageError:
                if not path.exists():  # otherwise another process of this device was faster
                    raise
        return DeviceFile.open(path, wait=_WAIT)

    def note_refusal(self, reason: str) -> None:
        """Write down what the server asked for and did not get, for the device's owner."""
        path = self.folder / REFUSALS
        with writing(path):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size > _LARGEST_LOG:
                path.replace(path.with_suffix(".old"))
            line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {' '.join(reason.split())}\n"
            path.touch(mode=0o600)
            with path.open("ab", buffering=0) as log:
                log.write(line.encode())


def user_of(identity: bytes) -> str:
    """Return the name of a user who was not given one: the first half of the SHA-256 of its identity key.

    >>> user_of(bytes(32))
    '66687aadf862bd776c8fc18b8e9f8e20'
    """
    return hashlib.sha256(identity).hexdigest()[:32]


def create_device(folder: str | os.PathLike[str]) -> tuple[str, str]:
    """Make a device's folder, or open it; return its user and identity key, for a file of pinned members."""
    device = Device(Path(folder), "", DeviceConfiguration(scopes=frozenset({"flower"})), lambda *_: False)
    client = device.client()
    return client.user, client.membership.identity.public.hex()


def _node_configuration(node: Mapping[str, UserConfigValue], app: DeviceConfiguration) -> DeviceConfiguration:
    """Return the configuration of a device whose owner may have said otherwise than the app."""
    protocols = node.get("coterie-protocols")
    least = node.get("coterie-least-privacy", app.least_privacy)
    if isinstance(least, bool) or not isinstance(least, int):
        raise UsageError(f"coterie-least-privacy is {least!r}; give a whole number of users")
    permitted = app.protocols if protocols is None else str(protocols).replace(",", " ").split()
    return replace(app, least_privacy=least, protocols=frozenset(permitted))


def _members_from(verify_member: VerifyMember | None, path: str) -> VerifyMember:
    """Return the device owner's file if there is one, else what the app was given; there is no default."""
    if path:
        return PinnedMembers(path)
    if verify_member is None:
        raise UsageError(
            "nothing says who is a real user: name a file of pinned members with coterie-members=FILE in the "
            "node's configuration, or give the mod verify_member=TrustServerForIdentities() if the server is "
            "trusted with that"
        )
    return verify_member
