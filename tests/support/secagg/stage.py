"""A machine at one moment of a batch's life, to which it can be taken back."""
# ruff: noqa: SLF001 - what must not change is what a machine keeps to itself

import copy

import msgspec
import numpy as np

from coterie.secagg import SealedClient, UnsealedClient
from coterie.secagg.protocols.agreement.boxes import leaf
from coterie.secagg.protocols.agreement.messages import Complaint, RevealCall, SharersCall
from coterie.secagg.wire.framing import encode
from support.secagg.batches import SCOPE
from support.secagg.servers import frozen


class Stage:
    """A machine at one moment, and a message of each kind: the one to expect then, if that kind is expected."""

    def __init__(self, machine, good, sender=None):
        self.machine, self.good, self.sender = machine, good, sender
        self._first = [(part, _saved(part)) for part in self._parts()]
        self._buffers = [(part, bytes(part._message)) for part in self._parts() if hasattr(part, "_message")]

    def __repr__(self):
        return f"{type(self.machine).__name__} {' '.join(state.value for state in self.states())}"

    def _parts(self):
        """All objects that change."""
        inside = [getattr(self.machine, name, None) for name in ("_boxes", "_uploads")]
        parts = [self.machine, *filter(None, inside), *self._participants()]
        return [*parts, self.machine.membership.store] if isinstance(self.machine, SealedClient) else parts

    def _participants(self):
        """A client's side of the round that it is in."""
        return getattr(self.machine, "_rounds", {}).values()

    def feed(self, data):
        """Give the machine a message."""
        return self.machine.receive(data) if self.sender is None else self.machine.receive(self.sender, data)

    def remembered(self):
        """All that the machine remembers, as values that compare, but for whose vectors a server has seen."""
        left_out = {"_rounds", "_seen", "_vectors_from", "_irregular"}
        return [frozen({name: value for name, value in vars(part).items() if name not in left_out})
                for part in self._parts()]  # fmt: skip

    @property
    def records(self):
        """The device's records."""
        return dict(self.machine.membership.store.records)

    def restore(self):
        """Take the machine back to this moment."""
        for part, saved in self._first:
            vars(part).clear()
            vars(part).update({name: _copied(value) for name, value in saved.items()})
        for part, content in self._buffers:
            part._message[:] = content

    def states(self):
        """Where the machine stands in its tables: a client in each of those that it has now."""
        if isinstance(self.machine, SealedClient):
            with self.machine.membership.record(SCOPE) as record:
                return record.enrolment, self.machine._state_in(record, SCOPE), *self._phase()
        if isinstance(self.machine, UnsealedClient):
            return self.machine._state(SCOPE), *self._phase()
        return (self.machine._states[self.sender],)

    def _phase(self):
        """Where a client stands in the phases of a round, if it is in one."""
        return [part._state for part in self._participants()]


def _saved(part):
    return {name: _copied(value) for name, value in vars(part).items()}


def _copied(value):
    """A copy of what a machine changes in place; its buffer is kept, and its content put back."""
    if isinstance(value, dict):
        return {key: held.copy() if isinstance(held, np.ndarray | dict) else held for key, held in value.items()}
    if isinstance(value, np.ndarray) and value.base is None:
        return value.copy()
    return copy.copy(value) if isinstance(value, set | list) else value


def complaint_about(server, holder, *, of):
    """A holder's signed complaint about the good box that a user sent it, as the server gets it."""
    roster = server._roster
    sender, mine = roster.position[of], roster.position[holder.user]
    digest = leaf(server._boxes.box(sender, mine))
    identity = holder._owner.identity if isinstance(holder, UnsealedClient) else holder.membership.identity
    return Complaint(sender, digest, identity.sign(*roster.complaint_to_sign(sender, mine, digest)))


def after_boxes(server, holder):
    """What ana may be sent once it has looked into its boxes: a complaint, or the sharers, as they are so far."""
    roster = server._roster
    complaint = msgspec.structs.replace(
        complaint_about(server, holder, of="ana"), user=roster.position[holder.user]
    )
    return {
        RevealCall: encode(RevealCall(SCOPE, roster.context, (complaint,))),
        SharersCall: encode(SharersCall(SCOPE, roster.context, tuple(sorted(server._boxes.senders)))),
    }
