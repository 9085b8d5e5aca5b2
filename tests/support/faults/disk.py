"""A disk as a power cut may leave it, made again from a record of the calls that wrote to it (disk_calls.c).

What a sync of a file covers is there afterwards: its bytes and its length; the names in a folder are there after a
sync of that folder. Of what came later each block of 512 or 4096 bytes may be there or not, on its own, and so may
every change of a name, and a length without the bytes (which read as zeros). A rename is whole or not there.
"""

from dataclasses import dataclass, field
from pathlib import Path

BLOCKS = (512, 4096)


@dataclass
class File:
    """A file's synced bytes, and the changes since, as ("write", place, bytes) or ("cut", size)."""

    synced: bytes = b""
    since: list = field(default_factory=list)

    def sync(self):
        """Bring everything down to the disk."""
        self.synced, self.since = bytes(changed(self.synced, self.since)), []

    def after_cut(self, fate):
        """The bytes that are left."""
        content, block = bytearray(self.synced), fate.block
        for change in self.since:
            if change[0] == "cut":
                if fate.survives():
                    cut(content, change[1])
                continue
            _, place, data = change
            end = place + len(data)
            while place < end:
                stop = min(end, (place // block + 1) * block)
                piece = data[len(data) - (end - place) : len(data) - (end - stop)]
                if fate.survives():
                    write(content, place, piece)
                elif stop > len(content) and fate.survives():
                    cut(content, stop)  # the length is there, the bytes are not
                place = stop
        return bytes(content)


@dataclass
class Folder:
    """A folder's names: those that were synced, all of now, and the changes since the sync, None for a removal."""

    synced: dict = field(default_factory=dict)
    names: dict = field(default_factory=dict)
    since: list = field(default_factory=list)

    def sync(self):
        """Bring all names down to the disk."""
        self.synced, self.since = dict(self.names), []

    def change(self, changes):
        """Change names, all at once."""
        apply(self.names, changes)
        self.since.append(changes)

    def after_cut(self, fate):
        """The names that are left."""
        names = dict(self.synced)
        for changes in self.since:
            if fate.survives():
                apply(names, changes)
        return names


@dataclass
class Fate:
    """What happens to everything that was not synced: each piece survives with a probability."""

    rng: object
    probability: float
    block: int = 512

    def survives(self):
        """Whether the next piece is on the disk."""
        return self.rng.random() < self.probability


def fates(rng):
    """The two plain fates, nothing or all of it, and two that tear: one for each size of block."""
    yield Fate(rng, 0.0)
    yield Fate(rng, 1.0)
    for block in BLOCKS:
        yield Fate(rng, rng.choice([0.2, 0.5, 0.8]), block)


def read_calls(file):
    """The calls of a record, each as a tuple whose first item is its letter."""
    data, calls, at = Path(file).read_bytes(), [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        kind, _, rest = data[at:end].decode().partition(" ")
        at = end + 1
        if kind == "W":
            inode, place, size = map(int, rest.split())
            calls.append((kind, inode, place, data[at : at + size]))
            at += size
        elif kind in "CM":
            inode, _, path = rest.partition(" ")
            calls.append((kind, int(inode), Path(path)))
        elif kind == "N":
            calls.append((kind, rest))
        elif kind in "RLU":
            calls.append((kind, *map(Path, rest.split("\t"))))
        else:
            calls.append((kind, *map(int, rest.split())))
    return calls


class Disk:
    """What is on a disk below one folder, after some calls."""

    def __init__(self, root):
        self.root, self.top = Path(root), Folder()
        self._nodes = {}  # by inode; a number is given again when its file is gone

    def apply(self, call):
        """Do what a call did; calls beside the folder, and marks, do nothing."""
        kind, *about = call
        if kind in "CM":
            self._make(kind, *about)
        elif kind in "WTS" and about[0] in self._nodes:
            node = self._nodes[about[0]]
            if kind == "S":
                node.sync()
            else:
                node.since.append(("write", *about[1:]) if kind == "W" else ("cut", about[1]))
        elif kind in "RLU" and self.root in about[0].parents:
            folder, name = self._folder(about[0]), about[0].name
            changes = {} if kind == "L" else {name: None}
            if kind != "U":
                assert about[1].parent == about[0].parent
                changes[about[1].name] = folder.names[name]
            folder.change(changes)

    def _make(self, kind, inode, path):
        node = File() if kind == "C" else Folder()
        if path == self.root:
            self._nodes[inode] = self.top
        elif self.root in path.parents:
            self._nodes[inode] = node
            self._folder(path).change({path.name: node})

    def _folder(self, path):
        node = self.top
        for name in path.parent.relative_to(self.root).parts:
            node = node.names[name]
        return node

    def write(self, target, fate):
        """Write what a power cut leaves of the folder into a new one."""
        self._write(self.top, Path(target), fate, {})

    def _write(self, folder, target, fate, written):
        target.mkdir()
        for name, node in folder.after_cut(fate).items():
            path = target / name
            if isinstance(node, Folder):
                self._write(node, path, fate, written)
            elif id(node) in written:
                path.hardlink_to(written[id(node)])
            else:
                path.touch(0o600)
                path.write_bytes(node.after_cut(fate))
                written[id(node)] = path


def apply(names, changes):
    """Change names in place."""
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def changed(content, changes):
    """Bytes after all changes."""
    content = bytearray(content)
    for kind, at, *data in changes:
        if kind == "cut":
            cut(content, at)
        else:
            write(content, at, data[0])
    return content


def cut(content, size):
    """Give bytes another length, in place."""
    del content[size:]
    content.extend(bytes(size - len(content)))


def write(content, place, data):
    """Write into bytes, in place, beyond their end too."""
    if len(content) < place:
        content.extend(bytes(place - len(content)))
    content[place : place + len(data)] = data
