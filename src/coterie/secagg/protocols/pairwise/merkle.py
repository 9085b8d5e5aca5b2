"""One signature for many boxes, of which a receiver sees only its own: a Merkle tree over their digests (§5).

leaf = SHA-256(0x00 ‖ content), node = SHA-256(0x01 ‖ left ‖ right); leaves missing to a power of two are 32 zero
bytes. So the path of every leaf is equally long.
"""

import hashlib
from collections.abc import Iterable, Sequence

DIGEST_BYTES = 32
_MISSING = bytes(DIGEST_BYTES)


def leaf(content: bytes | memoryview) -> bytes:
    """Return the digest of what stands at a leaf."""
    digest = hashlib.sha256(b"\0")
    digest.update(content)
    return digest.digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def path_bytes(leaves: int) -> int:
    """Return how long the path of a leaf is, one sibling after the other from the leaf up.

    >>> [path_bytes(leaves) // DIGEST_BYTES for leaves in (1, 2, 12, 16, 17)]
    [0, 1, 4, 4, 5]
    """
    return DIGEST_BYTES * (leaves - 1).bit_length()


class MerkleTree:
    """The tree over some leaves.

    >>> tree = MerkleTree([leaf(bytes([number])) for number in range(5)])
    >>> all(path_root(tree.leaves[n], n, tree.path(n)) == tree.root for n in range(5))
    True
    """

    def __init__(self, leaves: Iterable[bytes]) -> None:
        self.leaves: Sequence[bytes] = tuple(leaves)
        self._levels = [list(self.leaves)]
        empty = _MISSING
        while len(row := self._levels[-1]) > 1:
            if len(row) % 2:
                row.append(empty)
            self._levels.append([_node(row[at], row[at + 1]) for at in range(0, len(row), 2)])
            empty = _node(empty, empty)

    @property
    def root(self) -> bytes:
        """What is signed for all leaves."""
        return self._levels[-1][0]

    def path(self, place: int) -> bytes:
        """Return the siblings on the way from a leaf to the root."""
        return b"".join(row[place >> depth ^ 1] for depth, row in enumerate(self._levels[:-1]))


def path_root(digest: bytes, place: int, path: bytes | memoryview) -> bytes:
    """Return the root of a tree that has this leaf in this place, with this path."""
    for start in range(0, len(path), DIGEST_BYTES):
        sibling = bytes(path[start : start + DIGEST_BYTES])
        digest = _node(sibling, digest) if place & 1 else _node(digest, sibling)
        place >>= 1
    return digest
