"""From floats to masked words in one pass: rounding at random, keystreams and masks, a piece at a time (§1, §3).

A piece is rounded, and all masks are added to it, while it lies in the core's cache. With several threads each
takes one stretch of the vector and moves its keystreams there, which counter mode allows: the words do not
depend on the number of threads.
"""

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM

from coterie.errors import UsageError
from coterie.secagg.crypto.keys import Seed
from coterie.secagg.crypto.ring import EXTRA_WORDS, FLOATS, PIECE, RING_32, Floats, Quantisation, Ring, Words

BLOCK_BYTES = 16
BLOCK_WORDS = 4
GCM_NONCE_BYTES = 12
GCM_FIRST_BLOCK = 2
_ROUNDING_KEY_BYTES = 16  # AES-128: rounding needs fair coins, not secret ones
_ZEROS = memoryview(bytes(4 * PIECE))
_LOW_31_BITS = np.uint32(2**31 - 1)


@dataclass(frozen=True)
class Mask:
    """A keystream to add to a vector (sign 1) or to subtract from it (sign -1)."""

    seed: Seed
    sign: int

    def __post_init__(self) -> None:
        if self.sign not in {1, -1}:
            raise UsageError(f"the sign of a mask is {self.sign}; it must be 1 or -1")


class _Room:
    """One thread's room for a piece of keystream; the next piece overwrites it."""

    def __init__(self) -> None:
        # `update_into` may ask for room for all but one byte of a block beyond what it writes.
        self._bytes = memoryview(bytearray(4 * PIECE + BLOCK_BYTES - 1))
        self._words = np.frombuffer(self._bytes, dtype="<u4", count=PIECE)

    def fill(self, encryptor: "CipherContext | _FromBlockZero", count: int) -> Words:
        """Return the next `count` words of a keystream, at most a piece."""
        if count == PIECE:
            encryptor.update_into(_ZEROS, self._bytes)
            return self._words
        encryptor.update_into(_ZEROS[: 4 * count], self._bytes)
        return self._words[:count]


class _FromBlockZero:
    """The AES-CTR keystream from counter block zero, a seventh faster where the processor has vector AES.

    OpenSSL uses vector instructions for GCM and not for CTR. GCM with a nonce of zeros runs the same counter
    from block two on, so the words are the same; its tag is never asked for.
    """

    def __init__(self, key: bytes) -> None:
        self._first = Cipher(AES(key), CTR(bytes(BLOCK_BYTES))).encryptor()
        self._rest = Cipher(AES(key), GCM(bytes(GCM_NONCE_BYTES))).encryptor()
        self._first_left = GCM_FIRST_BLOCK * BLOCK_BYTES

    def update_into(self, zeros: memoryview, buffer: memoryview) -> None:
        """Write as many bytes of the keystream as there are zeros."""
        if self._first_left:
            count = min(len(zeros), self._first_left)
            self._first.update_into(zeros[:count], buffer)
            self._first_left -= count
            zeros, buffer = zeros[count:], buffer[count:]
        self._rest.update_into(zeros, buffer)


def _counter_mode(key: bytes, first_word: int) -> CipherContext | _FromBlockZero:
    """Return what encrypts with the AES-CTR keystream that begins at a word of the one from counter block zero."""
    if first_word % BLOCK_WORDS:
        raise UsageError(f"a keystream cannot begin at word {first_word}, inside a block of {BLOCK_WORDS} words")
    if first_word == 0:
        return _FromBlockZero(key)
    block = (first_word // BLOCK_WORDS).to_bytes(BLOCK_BYTES, "big")
    return Cipher(AES(key), CTR(block)).encryptor()


class Keystream:
    """The words of a mask: the AES-256-CTR keystream whose key is the seed, from counter block zero (§3).

    Words are little-endian. For q = 2^31 - 1 a word is cut to 31 bits, and left out if it is then q (never
    reduced: 0 would come twice as often as any other); later words move up.

    >>> words = np.empty(2, dtype=np.uint32)
    >>> Keystream(Seed(bytes(32)), RING_32).words_into(words)
    >>> words
    array([2025887196, 2307473570], dtype=uint32)
    """

    def __init__(self, seed: Seed, ring: Ring, first_word: int = 0, room: _Room | None = None) -> None:
        if first_word and ring != RING_32:
            raise UsageError(
                f"a keystream modulo {ring.modulus} cannot begin at word {first_word}: some are left out"
            )
        self._below = None if ring == RING_32 else ring.modulus
        self._encryptor = _counter_mode(seed.reveal(), first_word)
        self._room = room or _Room()

    def words_into(self, buffer: Words) -> None:
        """Fill the buffer with the next words."""
        for start in range(0, len(buffer), PIECE):
            piece = buffer[start : start + PIECE]
            piece[...] = self.next_piece(len(piece))

    def next_piece(self, count: int) -> Words:
        """Return the next `count` words, at most a piece; they are overwritten when the room is used again."""
        words = self._room.fill(self._encryptor, count)
        if self._below is None or count == 0:
            return words
        np.bitwise_and(words, _LOW_31_BITS, words)
        if words.max() < self._below:
            return words
        kept = words[words < self._below]
        return np.concatenate((kept, self.next_piece(count - len(kept))))


class _Masking:
    """All masks of a vector, from one of its words on, to be added to it piece by piece."""

    def __init__(self, masks: Iterable[Mask], ring: Ring, first_word: int, room: _Room) -> None:
        self._terms = [
            (_combining(ring, mask.sign), Keystream(mask.seed, ring, first_word, room).next_piece)
            for mask in masks
        ]

    def add_into(self, piece: Words) -> None:
        count = len(piece)
        for combine_into, next_piece in self._terms:
            combine_into(piece, next_piece(count), piece)


def _combining(ring: Ring, sign: int) -> Callable[[Words, Words, Words], object]:
    """Return what adds or subtracts; unsigned words wrap around at 2^32 by themselves, so numpy's own then."""
    if ring == RING_32:
        return np.add if sign > 0 else np.subtract
    into = ring.add_into if sign > 0 else ring.subtract_into
    return lambda target, words, _: into(target, words)


class _Rounding:
    """Rounds values at random to levels, from one word of the vector on, piece by piece.

    With y = (x + c) / step, u uniform in [0, 1) and h = (levels - 1) / 2, the level ⌊y + u⌋ is the nearest
    integer to x·scale + (u - ½), plus h. So x·scale·2^k, as a float64, plus a random integer of k bits, plus
    (1.5·2^52 + h)·2^k makes a float64 whose last place is worth one level: the processor rounds to it, and the
    level is its low 32 bits. If h is not a whole number, its ½ and that of u - ½ cancel: then the random integer
    has no sign. k is 32, or with more than 2^20 levels as much less as keeps the first sum exact to k binary
    places. So no level beyond the last can come out, and the expectation of a level differs from y by less than
    4·2^-k: by 2^-30, or by 2^-50 of the whole range, hardly more than what a float64 can tell.
    """

    def __init__(self, quantisation: Quantisation, weight: int, key: bytes, first_word: int, room: _Room) -> None:
        self._clip = quantisation.clip
        self._weight = np.uint32(weight)
        self._encryptor = _counter_mode(key, first_word)
        self._room = room
        span = quantisation.levels - 1
        places = min(32, 52 - span.bit_length())
        coin = np.dtype(np.int32 if span % 2 == 0 else np.uint32)
        self._surplus = np.array(32 - places, dtype=coin)
        self._scale = np.array(math.ldexp(quantisation.scale, places))
        self._magic = np.array(math.ldexp(1.5 * 2.0**52 + span // 2, places))
        self._sums = np.empty(PIECE)
        self._beyond = np.empty(PIECE, dtype=np.bool_)

    def words_into(self, words: Words, values: Floats, first_index: int) -> int:
        """Write weight·level for each value; return how many values were clipped."""
        sums = self._sums[: len(values)]
        clipped = self._clip_into(sums, values, first_index)
        np.multiply(sums, self._scale, sums)
        drawn = self._room.fill(self._encryptor, len(values)).view(self._surplus.dtype)
        if self._surplus:
            np.right_shift(drawn, self._surplus, drawn)
        np.add(sums, drawn, sums)
        np.add(sums, self._magic, sums)
        np.copyto(words, sums.view(np.uint64), casting="unsafe")
        if self._weight > 1:
            np.multiply(words, self._weight, words)
        return clipped

    def _clip_into(self, target: Floats, values: Floats, first_index: int) -> int:
        """Copy the values, clipped; return how many that changed. Refuse NaN and infinity."""
        # The reductions come first: they bring the values into the cache faster than a copy that widens them.
        low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
        if -self._clip <= low and high <= self._clip:  # False for NaN, which both reductions pass on
            np.copyto(target, values)
            return 0
        if not (math.isfinite(low) and math.isfinite(high)):
            at = int(np.flatnonzero(~np.isfinite(values))[0])
            raise UsageError(f"value {first_index + at} is {values[at]}; only finite numbers can be summed")
        np.copyto(target, values)
        beyond = self._beyond[: len(values)]
        clipped = np.count_nonzero(np.greater(target, self._clip, beyond))
        clipped += np.count_nonzero(np.less(target, -self._clip, beyond))
        np.clip(target, -self._clip, self._clip, out=target)
        return int(clipped)


def quantise_into(
    out: Words,
    values: Floats,
    weight: int,
    quantisation: Quantisation,
    rng: np.random.Generator,
    *,
    threads: int = 1,
) -> int:
    """Write the vector of §1, unmasked: weight·level of each value, then the weight, then two check words of 1.

    `out` has `EXTRA_WORDS` more words than there are values. Rounding is unbiased (see docs/protocol.md §1) and
    takes its randomness from one draw of `rng`. Returns how many values were clipped, for the device's own eyes.

    >>> quantisation = Quantisation.fitting(RING_32, clip=1.0, cohort=10)
    >>> out = np.empty(5, dtype=np.uint32)
    >>> quantise_into(out, np.array([-1.0, 7.0]), 1, quantisation, np.random.default_rng(0))
    1
    >>> out.tolist()
    [0, 429496729, 1, 1, 1]
    """
    return _write(out, values, weight, quantisation, rng, masks=(), threads=threads)


def mask_into(  # noqa: PLR0917 - quantise_into's, and the masks
    out: Words,
    values: Floats,
    weight: int,
    quantisation: Quantisation,
    masks: Iterable[Mask],
    rng: np.random.Generator,
    *,
    threads: int = 1,
) -> int:
    """Write the vector of §1 with all masks added: what `quantise_into` and then `add_masks` would give.

    If it raises, what `out` holds is no vector and must not leave the device.
    """
    masks = tuple(masks)
    if not masks:
        raise UsageError("a vector without a mask would leave the device in the clear; give at least one mask")
    return _write(out, values, weight, quantisation, rng, masks=masks, threads=threads)


def add_masks(vector: Words, masks: Iterable[Mask], ring: Ring, *, threads: int = 1) -> None:
    """Add every mask to the vector, or subtract it, as its sign says, in place."""
    masks = tuple(masks)

    def work(start: int, stop: int) -> int:
        masking = _Masking(masks, ring, start, _Room())
        for low in range(start, stop, PIECE):
            masking.add_into(vector[low : min(low + PIECE, stop)])
        return 0

    _check_vector(vector, len(vector))
    _in_stretches(len(vector), threads, ring, work)


def _write(
    out: Words,
    values: Floats,
    weight: int,
    quantisation: Quantisation,
    rng: np.random.Generator,
    *,
    masks: tuple[Mask, ...],
    threads: int,
) -> int:
    if values.ndim != 1 or values.dtype not in FLOATS:
        raise UsageError(f"values are of shape {values.shape} and {values.dtype}; give one row of floats")
    _check_vector(out, len(values) + EXTRA_WORDS)
    weight = quantisation.check_weight(weight)
    key = rng.bytes(_ROUNDING_KEY_BYTES)
    out[-EXTRA_WORDS:] = (weight, 1, 1)

    def work(start: int, stop: int) -> int:
        room = _Room()
        rounding = _Rounding(quantisation, weight, key, start, room)
        masking = _Masking(masks, quantisation.ring, start, room)
        clipped = 0
        for low in range(start, stop, PIECE):
            piece = out[low : min(low + PIECE, stop)]
            if len(part := values[low : low + len(piece)]):
                clipped += rounding.words_into(piece[: len(part)], part, low)
            masking.add_into(piece)
        return clipped

    return _in_stretches(len(out), threads, quantisation.ring, work)


def _check_vector(vector: Words, size: int) -> None:
    if vector.dtype != np.uint32 or vector.shape != (size,):
        raise UsageError(f"the vector is of shape {vector.shape} and {vector.dtype}; give {size} words of uint32")


def _in_stretches(words: int, threads: int, ring: Ring, work: Callable[[int, int], int]) -> int:
    """Return the sum of work(start, stop) over stretches of whole blocks, one for each thread."""
    if threads < 1:
        raise UsageError(f"{threads} threads cannot work; give 1 or more")
    if threads == 1 or ring != RING_32:  # modulo the prime, where a mask's words lie shows only on the way
        return work(0, words)
    length = math.ceil(words / threads / BLOCK_WORDS) * BLOCK_WORDS
    starts = range(0, words, max(length, BLOCK_WORDS))
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda start: work(start, min(start + length, words)), starts))
