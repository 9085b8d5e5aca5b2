"""Flower's own grid and client apps in this process: messages reach the app as a SuperNode gives them."""

import threading
from contextlib import contextmanager
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from support.flower.app import USERS, app, mod

ALWAYS = 1e6


class Nodes:
    """Nodes of one run, by partition; each can be away, or lost at the moment of a message."""

    def __init__(self, app, partitions, config=lambda partition: {}):
        self._app, self._config = app, config
        self.grid, self._state = empty_grid()
        self._node, self._number = {}, count()
        self.loses = lambda partition, message: False
        """Whether a node is gone when a message comes."""
        self.seen = []
        """All replies, with the partition that they came from."""
        for partition in partitions:
            self.join(partition)

    def join(self, partition):
        """Connect a node, or connect it again with a new id."""
        node = self._state.create_node(
            "", "", b"%d-%d" % (partition, next(self._number)), heartbeat_interval=ALWAYS
        )
        assert self._state.acknowledge_node_heartbeat(node, heartbeat_interval=ALWAYS)
        self._node[node] = partition

    def leave(self, partition):
        """Let a node disconnect."""
        for node, each in list(self._node.items()):
            if each == partition:
                del self._node[node]
                self._state.deactivate_node(node)

    def come_back(self, node, partition):
        """Let a node that has left connect again under its id, as with a registered key."""
        assert self._state.activate_node(node, heartbeat_interval=ALWAYS)
        self._node[node] = partition

    @property
    def ids(self):
        """The ids of the nodes by partition."""
        return {partition: node for node, partition in self._node.items()}

    @contextmanager
    def running(self):
        """Let nodes answer, in a thread of their own, while the block lasts."""
        TaskIdentity._run_id = self.grid.run.run_id  # noqa: SLF001 - `in_a_task` puts it back
        stop = threading.Event()
        thread = threading.Thread(target=self._serve, args=(stop,))
        thread.start()
        try:
            yield self.grid
        finally:
            stop.set()
            thread.join()

    def _serve(self, stop):
        while not stop.is_set():
            for node, partition in list(self._node.items()):
                for message in self._state.get_message_ins(node_id=node, limit=1):
                    if not self.loses(partition, message):
                        self._answer(node, partition, message)
            stop.wait(0.002)

    def _answer(self, node, partition, message):
        config = {"partition-id": partition, "num-partitions": len(self._node), **self._config(partition)}
        context = Context(self.grid.run.run_id, node, config, RecordDict(), {})
        try:
            reply = self._app(message, context)
        except Exception as error:  # noqa: BLE001 - as a SuperNode does
            reply = Message(Error(0, str(error)), reply_to=message)
        self.seen.append((partition, reply))
        reply.metadata.__dict__["_message_id"] = f"reply-{len(self.seen)}"
        assert self._state.store_message_res(reply)


def federation(folder, users=USERS, **changes):
    """Sealed nodes in this process."""
    return Nodes(app(mod(folder, **changes)), range(users))


def empty_grid():
    """Flower's own grid of a run in this process, with its state; nobody is connected yet."""
    factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
    state, grid = factory.state(), InMemoryGrid(factory)
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, None, "flwr-serverapp")
    grid.set_run(state.get_run_info(run_ids=[run])[0])
    return grid, state


def in_a_task(monkeypatch):
    """Messages are made inside a task, as in a ServerApp."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
