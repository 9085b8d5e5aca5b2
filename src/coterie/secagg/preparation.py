"""Masks of LightSecAgg that are shared before their round is called: both sides, and the device's store (§5).

Before the call there are the phases up to the list of sharers; after it the vector is a client's first answer, and
only the agreement and one sum of shares follow. A mask is for one round, one roster and one vector: it is deleted
from the device's store, durably, before the vector leaves.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import msgspec

from coterie.errors import PeerError, UsageError
from coterie.secagg.batch.charter import Charter
from coterie.secagg.batch.membership import DeviceStore, Membership
from coterie.secagg.client import SealedClient
from coterie.secagg.crypto.keys import Seed, ShareKey, StoredSecrets
from coterie.secagg.crypto.masking import Mask
from coterie.secagg.protocols import InnerProtocol
from coterie.secagg.protocols.agreement.boxes import SentBoxes
from coterie.secagg.protocols.agreement.messages import (
    CLIENT_TABLE,
    ParticipantState,
    Positions,
    RosterLine,
    ServerState,
    SharersCall,
)
from coterie.secagg.protocols.agreement.roster import Roster
from coterie.secagg.protocols.interface import (
    Group,
    Outgoing,
    Participant,
    Party,
    RoundResult,
    RoundSetting,
    ServerRound,
    Task,
)
from coterie.secagg.protocols.lightsecagg import (
    CodedRoster,
    LightParticipant,
    LightRound,
    LightSecAgg,
    PreparationCall,
)
from coterie.secagg.server import common_setting, round_groups
from coterie.secagg.wire.framing import Data, Message, encode
from coterie.secagg.wire.messages import CLIENT_SEALED, ClientState, RoundCall, Terms, next_state, refusal


def sharing_setting(setting: RoundSetting) -> RoundSetting:
    """Return what a round is before it is called: the same, but of its terms only the sizes are known."""
    terms = Terms(b"", setting.terms.dimension, setting.terms.min_included)
    return replace(setting, mode="preparation", terms=terms)


# --- a user's side

CLIENT_PREPARING: dict[tuple[ClientState, type[Message]], ClientState] = {
    **CLIENT_SEALED,
    **{(state, PreparationCall): state for state in ClientState if state is not ClientState.OUTSIDE},
}
"""A preparation is beside the rounds: it may begin at any time, and leaves a client where it is in them."""


class PreparedMask(StoredSecrets):
    """A mask that was shared before its round was called, and the shares of the others' that came for it."""

    lines: tuple[RosterLine, ...]
    seed: bytes
    sharers: Positions
    shares: dict[int, bytes]


class PreparingParticipant(LightParticipant):
    """A user that shares its mask before the round is called: the first phases, without a vector."""

    def __init__(self, party: Party, largest_shares: int) -> None:
        """Begin; a roster for which more than so many bytes of shares must be stored is refused."""
        self._enter(party, CodedRoster, threads=1)
        self._share_key, self._seed = ShareKey.generate(), Seed.generate()
        self._largest_shares = largest_shares
        self._advertise(b"")

    @property
    def finished(self) -> bool:
        """Whether the sharers are fixed, so that `mask` can be stored."""
        return self._state is ParticipantState.UPLOADED

    def _take(self, message: Message) -> bytes | memoryview | None:
        if self.finished:  # what follows is the call's, with a participant of its own
            raise refusal(CLIENT_TABLE, ParticipantState.DONE, message, "the server")
        return super()._take(message)

    def _split(self, roster: Roster, own_position: int) -> dict[int, bytes]:
        size = roster.box_format.content_bytes * len(roster.lines)
        if size > self._largest_shares:
            raise PeerError(
                f"the shares of this roster have {size} bytes; this device stores {self._largest_shares}"
            )
        return super()._split(roster, own_position)

    def _upload(self, message: SharersCall) -> None:
        """Keep what the call will need, if the user's whole batch is among the sharers."""
        present = self._checked_sharers(message.sharers)
        if not self._is_whole(present):
            raise PeerError(
                f"the server's sharers have a part of the batch of {self._party.user!r}, not the whole"
            )
        shares = {place: share for place, share in self._shares.items() if place in present}
        self.mask = PreparedMask(self._roster.lines, self._seed.reveal(), message.sharers, shares)


class PreparedParticipant(LightParticipant):
    """A user whose mask was shared before the call: its vector is the first answer."""

    def __init__(self, party: Party, mask: PreparedMask) -> None:
        self._enter(party, CodedRoster, threads=1)
        self._seed = Seed(mask.seed)
        self._make_room()
        self.masks = (Mask(self._seed, 1),)
        self._roster = CodedRoster(sharing_setting(party.setting), mask.lines, call_context=party.setting.context)
        self._own_position, self._shares = self._roster.position[party.user], mask.shares
        others = self._roster.graph.neighbours(self._own_position)
        self._sent = SentBoxes(self._roster, self._own_position, {}, dict.fromkeys(others, b""))
        self._state = ParticipantState.RECEIVED
        self._ready = SharersCall(party.setting.scope, party.setting.context, mask.sharers)

    def start(self) -> bytes | memoryview:
        """Return the masked vector."""
        answer = self.take(self._ready)
        assert answer is not None  # noqa: S101 - a preparation ends with whole batches
        return answer


class _StoredMask(StoredSecrets):
    """The one preparation that a device stores for a scope, or what is left of it: its round."""

    round: int
    """The last round for which a mask was shared, or which was sealed since: earlier ones are over."""
    charter: bytes
    """Empty, with both sizes zero, once the round was sealed."""
    dimension: int
    min_included: int
    mask: bytes
    """Empty while shares are exchanged, and once the mask was used or passed over."""
    version: Literal[1] = 1


class PreparingClient(SealedClient):
    """One user's side of sealed rounds, whose masks of LightSecAgg can be shared before a round is called.

    `shares` is a store of its own beside the membership's, with the same promises; like it, it is never copied or
    put back. It holds one mask at most for each scope, and `largest_shares` bytes of others' shares. A roster for
    a round is taken once, also after a restart. A mask is deleted durably before its vector leaves, when its round
    is passed over, and when a later one is prepared: it is used once or never.
    """

    _table = CLIENT_PREPARING

    def __init__(
        self,
        membership: Membership,
        shares: DeviceStore,
        *,
        largest_shares: int = 1 << 26,
        largest_message: int = 1 << 28,
    ) -> None:
        super().__init__(membership, largest_message)
        self._store, self._largest_shares = shares, largest_shares
        self._preparing: dict[str, tuple[PreparingParticipant, _StoredMask]] = {}

    def _phase(self, message: Message) -> Data | None:
        if isinstance(message, PreparationCall):
            return self._prepare(message)
        scope = getattr(message, "scope", "")
        preparing = self._preparing.get(scope)
        if preparing is None or getattr(message, "context", b"") != preparing[0].advertisement.context:
            return super()._phase(message)
        participant, started = preparing
        answer = participant.take(message)
        if participant.finished:
            if self._preparing.get(scope) == (participant, started):
                del self._preparing[scope]
            self._keep(scope, started, participant.mask)
        return answer

    def _prepare(self, message: PreparationCall) -> Data:
        """Begin to share the mask of a round: no other roster of it is taken from here on, after a restart too."""
        with self.membership.record(message.scope) as record:
            next_state(self._table, self._state_in(record, message.scope), message, "the server")
            terms = Terms(b"", message.dimension, message.min_included, record.sealed_step)
            task = Task(message.scope, message.charter, message.round, terms, record.in_force.recipe)
            charter, protocol = self._check(task, record)
        if not isinstance(protocol, LightSecAgg):
            raise PeerError(f"the server prepares a round of {protocol.name!r}, whose masks are not shared before")
        started = _StoredMask(message.round, charter.digest, message.dimension, message.min_included, b"")
        with self._store.transaction(message.scope) as slot:
            last = _StoredMask.decode(slot.content).round if slot.content else -1
            if message.round <= last:
                raise PeerError(
                    f"the server prepares round {message.round}; this device prepared or sealed round {last}"
                )
            slot.content = started.encode()
        party = self._member(charter, message.round, terms)
        party = replace(party, setting=sharing_setting(party.setting))
        participant = PreparingParticipant(party, self._largest_shares)
        self._preparing[message.scope] = participant, started
        return participant.start()

    def _keep(self, scope: str, started: _StoredMask, mask: PreparedMask) -> None:
        """Store a mask and the shares for its round, unless something later was started or sealed meanwhile."""
        with self._store.transaction(scope) as slot:
            if slot.content == started.encode():
                stored = msgspec.structs.replace(started, mask=mask.encode())
                slot.content = stored.encode()

    def _answer_call(self, message: RoundCall) -> Task:
        task = super()._answer_call(message)
        self._preparing.pop(message.scope, None)
        return task

    def _participant(self, protocol: InnerProtocol, party: Party, threads: int) -> Participant:
        """Return the side of a round, with the mask that is stored for it, which is deleted first, durably."""
        setting = party.setting
        with self._store.transaction(setting.scope) as slot:
            stored = _StoredMask.decode(slot.content) if slot.content else None
            if stored is not None and stored.round <= setting.round:
                # Of a round that is over only its number stays: a preparation that still runs in another process
                # does not find what it started, and stores nothing.
                slot.content = _StoredMask(setting.round, b"", 0, 0, b"").encode()
        sizes = (setting.terms.dimension, setting.terms.min_included)
        if (
            stored is not None
            and stored.mask
            and (stored.round, stored.charter) == (setting.round, party.charter)
            and (stored.dimension, stored.min_included) == sizes
        ):
            return PreparedParticipant(party, PreparedMask.decode(stored.mask))
        return super()._participant(protocol, party, threads)


# --- the server's side


class LightPreparation(LightRound):
    """The server's side of the phases before a call: it ends with sharers who are whole batches."""

    def _fix_sharers(self) -> Outgoing:
        self._end_phase()
        left = [user for user, state in self._states.items() if state is ServerState.FIXED]
        users = self._in_complete(left)
        self._demand_responders(len(users), "have good boxes")
        self._demand_batches(users, "have good boxes")
        self._sharers = self._places(users)
        self._demand_holders(self._sharers)
        self._states = {user: ServerState.HELPING if user in users else ServerState.LOST for user in self._states}
        self._next_step = self._end
        return dict.fromkeys(users, encode(SharersCall(*self._head, self._sharers)))

    @property
    def sharers(self) -> Positions:
        """The users whose masks are shared, once `advance` has nothing more to send."""
        if self._next_step is not None:
            raise UsageError("the preparation is not over; advance until nothing is to be sent")
        return self._sharers

    @property
    def roster(self) -> CodedRoster:
        """The roster, once it is fixed."""
        return self._roster

    def finish(self) -> RoundResult:
        """Refuse: before a call there is no sum."""
        raise UsageError("shares that are sent before a call give no sum; call the round")


class PreparedRound(LightRound):
    """The server's side of a round whose masks were shared before: call, agreement, recovery."""

    def __init__(self, groups: Iterable[Group], setting: RoundSetting, preparation: LightPreparation) -> None:
        shared = preparation.roster
        names = {shared.lines[place].user for place in preparation.sharers}
        complete = [group for group in groups if names.issuperset(group.identities)]
        super().__init__(complete, setting, CodedRoster, threads=1)
        if names != self._states.keys():
            raise UsageError("the batches of this round are not those that shared their masks for it")
        self._sharers = preparation.sharers
        self._set_roster(replace(shared, call_context=setting.context))
        self._states = dict.fromkeys(self._states, ServerState.FIXED)
        self._next_step, self._uploading = self._propose, True


def prepare_round(charters: Iterable[Charter], round_: int, dimension: int, min_included: int) -> LightPreparation:
    """Return the server's side of the phases before a round of LightSecAgg is called.

    Drive it as any round, but without `finish`; then call the round with `prepared_round`.
    """
    batches = tuple(charters)
    setting = sharing_setting(common_setting(batches, round_, Terms(b"", dimension, min_included)))
    if setting.inner != LightSecAgg.name:
        raise UsageError(f"masks are shared before a call in {LightSecAgg.name} only, not in {setting.inner}")
    groups = [
        Group(
            charter.digest,
            charter.privacy,
            charter.identities,
            encode(PreparationCall(charter.scope, charter.digest, round_, dimension, min_included)),
        )
        for charter in batches
    ]
    return LightPreparation(groups, setting, CodedRoster, threads=1)


def prepared_round(charters: Iterable[Charter], terms: Terms, preparation: LightPreparation) -> ServerRound:
    """Return the server's side of a round whose masks were shared before, over the batches that did so."""
    batches = tuple(charters)
    setting = common_setting(batches, preparation.round, terms)
    if sharing_setting(setting) != preparation.roster.setting:
        raise UsageError("the masks were shared for other batches, another dimension or another min_included")
    return PreparedRound(round_groups(batches, preparation.round, terms), setting, preparation)
