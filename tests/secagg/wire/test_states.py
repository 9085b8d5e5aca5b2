"""The machines keep to the order of messages in states.py's tables, and docs/protocol.md shows the same ones."""

import importlib.util
import re
from itertools import product
from pathlib import Path

import pytest

from coterie.errors import PeerError
from coterie.secagg.protocols import PROTOCOLS, messages_from_client, messages_from_server
from coterie.secagg.protocols import open as collection
from coterie.secagg.protocols.agreement import messages as agreed
from coterie.secagg.protocols.agreement.messages import ParticipantState, ServerState
from coterie.secagg.protocols.lightsecagg import LightRound
from coterie.secagg.protocols.open import CollectionState
from coterie.secagg.protocols.pairwise import PairwiseRound
from coterie.secagg.wire.messages import (
    CLIENT_ENROLMENT,
    CLIENT_SEALED,
    CLIENT_STEPS,
    CLIENT_UNSEALED,
    FROM_CLIENT,
    FROM_SERVER,
    SERVER_FOUNDING,
    SERVER_FOUNDING_ENDS,
    ClientState,
    EnrolmentState,
    Founding,
    FoundingState,
    next_state,
)
from support.secagg.batches import SCOPE
from support.secagg.servers import UPDATE
from support.secagg.stages import CLIENT_KINDS, SERVER_KINDS, Life

KINDS = (*SERVER_KINDS, *CLIENT_KINDS)
TABLES = {
    "CLIENT_ENROLMENT": (CLIENT_ENROLMENT, EnrolmentState),
    "CLIENT_SEALED": (CLIENT_SEALED, ClientState),
    "CLIENT_UNSEALED": (CLIENT_UNSEALED, ClientState),
    "SERVER_FOUNDING": (SERVER_FOUNDING, FoundingState),
    "open.SERVER_TABLE": (collection.SERVER_TABLE, CollectionState),
    "agreed.CLIENT_TABLE": (agreed.CLIENT_TABLE, ParticipantState),
    "PairwiseRound.table": (PairwiseRound.table, ServerState),
    "LightRound.table": (LightRound.table, ServerState),
}
PROTOCOL = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()


@pytest.fixture(scope="module")
def life():
    """Both machines at every stage."""
    return Life()


def table_after(text):
    """Return the rows of the first Markdown table after a line that is this text."""
    _, _, rest = PROTOCOL.partition(f"\n{text}\n")
    rows = re.search(r"\n\|.*\n\| ---.*\n((?:\|.*\n)+)", rest).group(1)
    return [[cell.strip() for cell in row.strip("|\n").split("|")] for row in rows.splitlines()]


def test_every_state_is_tried(life):
    """The stages below cover every state, and for the client every pair of its two machines' states.

    A client that answers stands in the phases of a round too, but for the last: who is done is ready again.
    Complaints come in the sealed round only.
    """

    def seen(stages):
        found = set()
        for stage in stages:
            stage.restore()
            found.add(stage.states())
        return found

    phases = {(state,) for state in ParticipantState if state is not ParticipantState.DONE}
    rounds = {(ClientState.ANSWERING, *phase) for phase in phases}
    outside = {(state,) for state in ClientState if state is not ClientState.ANSWERING}
    assert seen([*life.devices, *life.participants]) == {
        (enrolment, *place) for enrolment, place in product(EnrolmentState, outside | rounds)
    }
    elsewhere = {(ClientState.OUTSIDE,), (ClientState.ANSWERING, ParticipantState.REVEALED)}
    assert seen(life.loners) == (outside | rounds) - elsewhere
    assert seen(life.pairings) == seen(life.lights) == {(state,) for state in ServerState}
    assert seen(life.founders) == {(state,) for state in FoundingState}
    assert seen(life.rounds) == {(state,) for state in CollectionState}


def check(stage, kind, tables):
    """A message that a table has moves that machine as it says and no other; any other one is refused."""
    stage.restore()
    before, remembered = stage.states(), stage.remembered()
    expected = [table.get((state, kind)) for table, state in zip(tables, before, strict=False)]
    if any(expected):
        stage.feed(stage.good[kind])
        return before, [new or old for new, old in zip(expected, before, strict=True)]
    with pytest.raises(PeerError, match=r"out of order|malformed message"):
        stage.feed(stage.good[kind])
    assert stage.remembered() == remembered
    return before, list(before)


def in_phase(place, states_after):
    """Where a client stands after a message, if the last phase or a new call ends what it was answering."""
    if states_after[-1] is ParticipantState.DONE:
        return [*states_after[:place], CLIENT_STEPS[ClientState.ANSWERING, "give the last answer"]]
    if states_after[place] is not ClientState.ANSWERING:
        return states_after[: place + 1]
    return states_after


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_takes_what_its_tables_have_and_nothing_else(life, kind):
    """In every state every message moves the client as the tables say, or is refused and changes nothing."""
    for stage in (*life.devices, *life.participants):
        before, expected = check(stage, kind, (CLIENT_ENROLMENT, CLIENT_SEALED, agreed.CLIENT_TABLE))
        if kind is Founding and before == (EnrolmentState.SIGNED, ClientState.OUTSIDE):
            expected[1] = CLIENT_STEPS[ClientState.OUTSIDE, "accept a charter"]
        assert list(stage.states()) == in_phase(1, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unsealed_client_takes_what_its_table_has_and_nothing_else(life, kind):
    """In every state every message moves it as the table says, or is refused and changes nothing."""
    for stage in life.loners:
        _, expected = check(stage, kind, (CLIENT_UNSEALED, agreed.CLIENT_TABLE))
        assert list(stage.states()) == in_phase(0, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pairwise_round_takes_what_its_table_has_and_nothing_else(life, kind):
    """In every state of a user every answer moves it as the table says, or is refused and changes nothing."""
    for stages, table in ((life.pairings, PairwiseRound.table), (life.lights, LightRound.table)):
        for stage in stages:
            _, expected = check(stage, kind, (table,))
            assert list(stage.states()) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_founder_takes_what_its_table_has_and_nothing_else(life, kind):
    """In every state of a member every message moves it as the table says, and the last one moves all on."""
    for stage in life.founders:
        before, expected = check(stage, kind, (SERVER_FOUNDING,))
        if stage.sender == "cas" and expected != list(before):  # cas answers last
            expected = [SERVER_FOUNDING_ENDS.get(expected[0], expected[0])]
            assert set(stage.machine._states.values()) == set(expected)  # noqa: SLF001 - all together
        assert list(stage.states()) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_takes_what_its_table_has_and_nothing_else(life, kind):
    """A vector that is asked for is taken once; everything else is refused and changes nothing."""
    for stage in life.rounds:
        _, expected = check(stage, kind, (collection.SERVER_TABLE,))
        assert list(stage.states()) == expected


@pytest.mark.parametrize("name", TABLES)
def test_what_is_not_in_a_table_is_refused_by_name(life, name):
    """For every pair that a table lacks the refusal names the message, the sender and what is expected instead."""
    table, machine = TABLES[name]
    good = {}
    for kind, data in life.stages[0].good.items():
        decoder = messages_from_server if kind in SERVER_KINDS else messages_from_client
        good[kind], _ = decoder.decode(data)
    for state, kind in product(machine, KINDS):
        if (state, kind) in table:
            assert next_state(table, state, good[kind], "ana") is table[state, kind]
        else:
            expected = " or ".join(other.__name__ for held, other in table if held is state) or "nothing"
            with pytest.raises(PeerError) as refusal:
                next_state(table, state, good[kind], "ana")
            order = f"in the state {state.value!r} only {expected} is expected"
            assert str(refusal.value) == f"{kind.__name__} came from ana out of order: {order}"


@pytest.mark.parametrize("name", TABLES)
def test_the_documents_transitions_are_those_of_the_code(name):
    """Each of the protocol's tables has the code's transitions, all of them, in the same order."""
    written = [tuple(row) for row in table_after(f"`{name}`")]
    table, _ = TABLES[name]
    assert written == [(state.value, kind.__name__, after.value) for (state, kind), after in table.items()]


def test_the_diagrams_are_those_of_the_tables():
    """Every state diagram in the documents is what the script draws from the tables, and shows all of them."""
    path = Path(__file__).parents[3] / "docs" / "diagrams.py"
    spec = importlib.util.spec_from_file_location("diagrams", path)
    diagrams = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(diagrams)
    for name, (machine, ways) in diagrams.DIAGRAMS.items():
        picture = path.parent / "pictures" / f"{name}.svg"
        assert picture.read_text(encoding="utf-8") == diagrams.drawn(machine, ways)
        assert f"(pictures/{name}.svg)" in PROTOCOL
    for name in set(TABLES) - {"CLIENT_UNSEALED"}:
        table, _ = TABLES[name]
        drawn = {(way.start, kind): way.end for _, ways in diagrams.DIAGRAMS.values() for way in ways
                 if not way.own for kind in way.label.split(", ")}  # fmt: skip
        assert {(state, kind.__name__): end for (state, kind), end in table.items()}.items() <= drawn.items()


def test_a_clients_own_steps_are_those_of_the_table(life):
    """Sealing takes a client into the phases of its round; that of `open` is over with it."""
    for stages, over in ((life.devices, True), (life.participants, False)):
        tried = 0
        for stage in stages:
            stage.restore()
            if stage.states()[1] is ClientState.CALLED:
                stage.machine.seal(stage.machine._tasks[SCOPE], UPDATE)  # noqa: SLF001 - what it was called to
                after = CLIENT_STEPS[ClientState.CALLED, "seal"]
                after = CLIENT_STEPS[after, "give the last answer"] if over else after
                assert stage.states()[1] is after
                tried += 1
        assert tried


def test_the_kinds_that_are_tried_are_all_that_there_are():
    """No message is left out of these tests, nor of the fuzzer's: the stages have all that either side decodes."""
    protocols = PROTOCOLS.values()
    assert {*FROM_SERVER, *(kind for each in protocols for kind in each.from_server)} == set(SERVER_KINDS)
    assert {*FROM_CLIENT, *(kind for each in protocols for kind in each.from_client)} == set(CLIENT_KINDS)


def test_the_documents_messages_are_those_of_the_code():
    """The protocol's list of messages has the tags, senders and fields of messages.py, and all of them."""
    _, _, rest = PROTOCOL.partition("| tag | message | from | fields |\n| --- | --- | --- | --- |\n")
    written = {}
    for row in re.match(r"(?:\|.*\n)+", rest).group().splitlines():
        tag, name, sender, fields = (cell.strip() for cell in row.strip("|").split("|"))
        written[int(tag), name.strip("`"), sender] = fields.partition(";")[0].split(", ")
    spoken = {"charter digest": "charter", "terms digest": "terms"}
    assert {
        key: [spoken.get(field, field.replace(" ", "_")) for field in fields] for key, fields in written.items()
    } == {
        (kind.__struct_config__.tag, kind.__name__, sender): list(kind.__struct_fields__)
        for sender, kinds in (("server", SERVER_KINDS), ("client", CLIENT_KINDS))
        for kind in kinds
    }
