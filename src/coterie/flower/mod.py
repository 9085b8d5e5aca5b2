"""The client's side in Flower: a mod that lets nothing of an update leave but sealed."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from flwr.app import DEFAULT_TTL, ArrayRecord, ConfigRecord, Context, Message, Metadata, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.clientapp.typing import ClientAppCallable

from coterie.errors import CoterieError, PeerError, UsageError
from coterie.flower.node import Device
from coterie.flower.recipe import ROUND, SETTINGS, STRUCTURE, Metrics, Recipe, Work
from coterie.flower.transport import (
    CHALLENGE_BYTES,
    IDENTITY_REQUEST,
    INTRODUCTION,
    LOG,
    MESSAGE,
    PURPOSE,
    REFUSAL,
    field_of,
    kind_of,
    unwrap,
    wrap,
)
from coterie.secagg import DEFAULT_PROTOCOL, DeviceConfiguration, DurableClient, Task, VerifyMember
from coterie.secagg.crypto.quantiser import Floats


class SealingMod:
    """A mod for `ClientApp(mods=[…])`, the only one that a sealed app needs.

    Mods that look at messages or count them come before it in the list, and see what is sealed. Mods that change
    an update, such as Flower's `LocalDpMod`, come after it, next to the app.

    The app's train function does not change: it gets a model and a configuration, and returns a model and its
    metrics. The mod answers the phases of the protocol, gives the function nothing but what the batch's charter
    and the round's terms fix, and seals what it returns. Everything that a server asks for beside that is refused:
    the reply says only that, the reason is in the node's log and in `refusals.log` of the device's folder.

    `least_privacy` is the least T of a batch that the device joins, `protocols` those that it takes part in,
    `recipe_keys` are names of further settings of the app that charters may fix. `verify_member` says who is a
    real user: `PinnedMembers(file)`, or `TrustServerForIdentities()` by name. The node's own configuration goes
    before all of these: `coterie-device=FOLDER` (required outside simulations), `coterie-least-privacy`,
    `coterie-protocols`, `coterie-members=FILE`, `coterie-user`. In a simulation the devices are folders below
    `simulated_devices`.
    """

    def __init__(
        self,
        scope: str = "flower",
        *,
        least_privacy: int = 8,
        protocols: Iterable[str] = (DEFAULT_PROTOCOL,),
        verify_member: VerifyMember | None = None,
        recipe_keys: Iterable[str] = (),
        simulated_devices: str | os.PathLike[str] | None = None,
    ) -> None:
        self._scope, self._verify_member = scope, verify_member
        self._configuration = DeviceConfiguration(
            scopes=frozenset({scope}),
            least_privacy=least_privacy,
            protocols=frozenset(protocols),
            recipe_keys=STRUCTURE | SETTINGS | frozenset(recipe_keys),
        )
        self._simulated = None if simulated_devices is None else Path(simulated_devices).expanduser()

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message of the server's, with the app's help where it is a call to a round."""
        device = None
        try:
            device = Device.of_node(context.node_config, self._configuration, self._verify_member, self._simulated)
            content = self._answer(device, message, context, call_next)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, its words must not reach the server
            if device is not None and isinstance(error, PeerError):
                _note_refusal(device, error)
            else:
                LOG.error("Coterie cannot answer: %s", error, exc_info=not isinstance(error, CoterieError))
            content = wrap(REFUSAL)
        return Message(content, reply_to=message)

    def _answer(
        self, device: Device, message: Message, context: Context, call_next: ClientAppCallable
    ) -> RecordDict:
        kind = kind_of(message.content)
        if kind == IDENTITY_REQUEST:
            return self._introduction(device.client(), message.content)
        if kind != MESSAGE:
            raise PeerError(
                f"the server sent a message of type {message.metadata.message_type!r} that is not sealed; this "
                "device answers none"
            )
        client = device.client()
        answer = client.receive(unwrap(message.content))
        if isinstance(answer, Task):
            answer = self._seal_update(client, answer, message.metadata.message_type, context, call_next)
        return wrap(MESSAGE, *([] if answer is None else [answer]))

    def _introduction(self, client: DurableClient, content: RecordDict) -> RecordDict:
        challenge = field_of(content, "challenge", bytes)
        if len(challenge) != CHALLENGE_BYTES:
            raise PeerError(f"the server's challenge has {len(challenge)} bytes, not {CHALLENGE_BYTES}")
        identity = client.membership.identity
        signature = identity.sign(PURPOSE, challenge, self._scope, client.user)
        return wrap(INTRODUCTION, user=client.user, identity=identity.public, signature=signature)

    def _seal_update(
        self, client: DurableClient, task: Task, message_type: str, context: Context, call_next: ClientAppCallable
    ) -> memoryview:
        """Let the app do the work of a round, and seal what it gives.

        What the server asked for wrongly is refused before the app is called. From then on there is an answer,
        whatever the app does: silence that depends on data would tell of them (docs/threat-model.md). Where the
        app fails, zeros are sealed with weight 1; the device's log says why.
        """
        recipe, work = Recipe.decode(task.recipe), Work.decode(task.terms.model)
        if work.kind != message_type:
            raise PeerError(f"the server asked to {work.kind} in a message of type {message_type!r}")
        metrics = recipe.metrics(work.kind)
        dimension = work.dimension + len(metrics.bounds)
        if task.terms.dimension != dimension:
            raise PeerError(
                f"the server asked for {task.terms.dimension} values; model and metrics have {dimension}"
            )
        with client.membership.record(task.scope) as record:
            clip = record.in_force.quantiser.clip
        try:
            reply = call_app(recipe, work, task.terms.step, context, call_next)
            update, weight = _update_in(reply, recipe, work, metrics, clip)
        except Exception as error:  # noqa: BLE001 - no answer would be one that depends on the device's data
            LOG.error(
                "Coterie seals zeros, since the app's %s function failed: %s",
                work.kind,
                error,
                exc_info=not isinstance(error, CoterieError),
            )
            update, weight = np.zeros(dimension, dtype=np.float32), 1
        return client.seal(task, update, weight=weight)


def _note_refusal(device: Device, reason: PeerError) -> None:
    LOG.warning("Coterie refused what the server asked for: %s", reason)
    try:
        device.note_refusal(str(reason))
    except CoterieError as error:  # a disk that is full, say, is no news for the server either
        LOG.error("Coterie cannot write down what it refused: %s", error)


def _update_in(reply: RecordDict, recipe: Recipe, work: Work, metrics: Metrics, clip: float) -> tuple[Floats, int]:
    """Return the update in what the app gave, its metrics behind it, and the user's weight."""
    values = _only(reply.metric_records, "MetricRecord")
    coordinates = metrics.coordinates(values, clip)
    update: Floats = (
        work.update(_only(reply.array_records, "ArrayRecord"), coordinates)
        if work.kind == "train"
        else np.array(coordinates, dtype=np.float64)
    )
    weight = values.get(recipe.weighted_by)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or weight != weight // 1:
        raise UsageError(f"the app gives no whole number as its metric {recipe.weighted_by!r}, its weight")
    return update, max(1, int(weight))


def call_app(recipe: Recipe, work: Work, step: int, context: Context, call_next: ClientAppCallable) -> RecordDict:
    """Call the app's function, with what charter and terms fix and nothing else that the server sent.

    An update is a function of these and of the device's data: the function gets no numbers of the run's or the
    node's, no state from earlier rounds, and what it puts into its state is not kept.
    """
    config = ConfigRecord(dict(recipe.settings(work.kind)))  # type: ignore[arg-type]  # JSON's
    config[ROUND] = step + 1 if work.kind == "train" else step
    content = RecordDict({recipe.records.arrays: work.record, recipe.records.config: config})
    metadata = Metadata(0, "", 0, 0, "", "", time.time(), DEFAULT_TTL, work.kind)
    own = Context(0, 0, context.node_config, state=RecordDict(), run_config=dict(recipe.run_config))
    message = make_message(metadata, content)
    reply = call_next(message, own)
    if own.state:
        LOG.warning("Coterie drops the state that the app keeps between rounds: %s", ", ".join(own.state))
    return reply.content


_R = TypeVar("_R", ArrayRecord, MetricRecord)


def _only(records: Mapping[str, _R], what: str) -> _R:
    if len(records) != 1:
        raise UsageError(f"the app returned {len(records)} records of type {what}; return one")
    return next(iter(records.values()))
