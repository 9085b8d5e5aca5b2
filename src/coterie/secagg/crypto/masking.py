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
from coterie.secagg.crypto.quantiser import FLOATS, Floats, Quantiser
from coterie.secagg.crypto.ring import PIECE, Ring, Words

BLOCK_BYTES = 16
GCM_NONCE_BYTES = 12
GCM_FIRST_BLOCK = 2
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

    def __init__(self, ring: Ring) -> None:
        self._width = ring.dtype.itemsize
        # `update_into` may ask for room for all but one byte of a block beyond what it writes.
        self._bytes = memoryview(bytearray(self._width * PIECE + BLOCK_BYTES - 1))
        self._words: Words = np.frombuffer(self._bytes, dtype=ring.dtype, count=PIECE)

    def fill(self, encryptor: "CipherContext | _FromBlockZero", count: int) -> Words:
        """Return the next `count` words of a keystream, at most a piece."""
        encryptor.update_into(_ZEROS[: self._width * count], self._bytes)
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


def _counter_mode(key: bytes, first_byte: int) -> CipherContext | _FromBlockZero:
    """Return what encrypts with the AES-CTR keystream that begins at a byte of the one from counter block zero."""
    if first_byte == 0:
        return _FromBlockZero(key)
    block, inside = divmod(first_byte, BLOCK_BYTES)
    if inside:
        raise UsageError(f"a keystream cannot begin at byte {first_byte}, inside a block of {BLOCK_BYTES} bytes")
    return Cipher(AES(key), CTR(block.to_bytes(BLOCK_BYTES, "big"))).encryptor()


class Keystream:
    """The words of a mask: the AES-256-CTR keystream whose key is the seed, from counter block zero (§3).

    Words are little-endian. For q = 2^31 - 1 a word is cut to 31 bits, and left out if it is then q (never
    reduced: 0 would come twice as often as any other); later words move up.

    >>> from coterie.secagg.crypto.ring import RING_32
    >>> words = np.empty(2, dtype=np.uint32)
    >>> Keystream(Seed(bytes(32)), RING_32).words_into(words)
    >>> words
    array([2025887196, 2307473570], dtype=uint32)
    """

    def __init__(self, seed: Seed, ring: Ring, first_word: int = 0, room: _Room | None = None) -> None:
        if first_word and not ring.wraps:
            raise UsageError(
                f"a keystream modulo {ring.modulus} cannot begin at word {first_word}: some are left out"
            )
        self._below = None if ring.wraps else ring.modulus
        self._encryptor = _counter_mode(seed.reveal(), ring.dtype.itemsize * first_word)
        self._room = room or _Room(ring)

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
        usable = words[words < self._below]
        return np.concatenate((usable, self.next_piece(count - len(usable))))


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
    """Return what adds or subtracts: numpy's own where words wrap around at q by themselves."""
    if ring.wraps:
        return np.add if sign > 0 else np.subtract
    into = ring.add_into if sign > 0 else ring.subtract_into
    return lambda target, words, _: into(target, words)


class _Rounding:
    """Rounds weighted values at random to whole numbers, from one word of the vector on, piece by piece.

    With y = w·(x + c) / s in [0, w·(levels - 1)], u uniform in [0, 1) and h = w·(levels - 1) / 2, the word ⌊y + u⌋
    is the nearest integer to x·scale + (u - ½), plus h, where scale = w / s. So x·scale·2^k, as a float64, plus a
    random integer of k bits, plus (1.5·2^52 + h)·2^k makes a float64 whose last place is worth one: the processor
    rounds to it, and the word is its low bits. If h is not a whole number, its ½ and that of u - ½ cancel: then
    the random integer has no sign. k is the number of bits of a word, or as much less as keeps the first sum exact
    to k binary places. So no word beyond the last level can come out, and the expectation of a word differs from y
    by less than 4·2^-k (or by 2^-50 of the whole range, hardly more than what a float64 can tell).
    """

    def __init__(self, quantiser: Quantiser, weight: int, key: Seed, first_word: int, room: _Room) -> None:
        self._clip = quantiser.clip
        width = quantiser.ring.dtype.itemsize
        self._encryptor = _counter_mode(key.reveal(), width * first_word)
        self._room = room
        span = weight * (quantiser.levels - 1)
        places = min(8 * width, 52 - span.bit_length())
        coin = np.dtype(f"{'i' if span % 2 == 0 else 'u'}{width}")
        self._surplus = np.array(8 * width - places, dtype=coin)
        self._scale = np.array(math.ldexp(quantiser.scale(weight), places))
        self._magic = np.array(math.ldexp(1.5 * 2.0**52 + span // 2, places))
        self._sums = np.empty(PIECE)

    def words_into(self, words: Words, values: Floats) -> None:
        """Write the word of each value."""
        sums = self._sums[: len(values)]
        self._clip_into(sums, values)
        np.multiply(sums, self._scale, sums)
        random_bits = self._room.fill(self._encryptor, len(values)).view(self._surplus.dtype)
        if self._surplus:
            np.right_shift(random_bits, self._surplus, random_bits)
        np.add(sums, random_bits, sums)
        np.add(sums, self._magic, sums)
        np.copyto(words, sums.view(np.uint64), casting="unsafe")

    def _clip_into(self, target: Floats, values: Floats) -> None:
        # The reductions come first: they bring the values into the cache faster than a copy that widens them.
        low, high = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
        if -self._clip <= low and high <= self._clip:
            np.copyto(target, values)
        else:
            np.clip(values, -self._clip, self._clip, out=target, dtype=np.float64)


def _finite(values: Floats) -> Floats:
    """Return the values, or as many zeros if one of them is not finite.

    All are looked at before any is rounded: to begin again on the way would take longer, and tell.
    """
    least, most = np.minimum.reduce(values, initial=0.0), np.maximum.reduce(values, initial=0.0)
    if math.isfinite(least) and math.isfinite(most):  # both reductions pass NaN on
        return values
    return np.zeros_like(values)


def quantise_into(
    out: Words, values: Floats, weight: int, quantiser: Quantiser, rounding: Seed, *, threads: int = 1
) -> None:
    """Write the vector of §1, unmasked: each value's word, then the weight, then the check words.

    `out` has `quantiser.extra_words` more words than there are values. Rounding is unbiased, and its bits are the
    keystream of `rounding`. An update with a value that is not finite counts as the zero update, at its weight.

    >>> from coterie.secagg.crypto.ring import RING_32
    >>> quantiser = Quantiser(RING_32, clip=1.0, weight_cap=1, cohort=10)
    >>> out = np.empty(5, dtype=np.uint32)
    >>> quantise_into(out, np.array([-1.0, 7.0]), 1, quantiser, Seed(bytes(32)))
    >>> out.tolist()
    [0, 429496729, 1, 1, 1]
    """
    _write(out, values, weight, quantiser, rounding, masks=(), threads=threads)


def mask_into(  # noqa: PLR0917 - quantise_into's, and the masks
    out: Words,
    values: Floats,
    weight: int,
    quantiser: Quantiser,
    masks: Iterable[Mask],
    rounding: Seed,
    *,
    threads: int = 1,
) -> None:
    """Write the vector of §1 with all masks added: what `quantise_into` and then `add_masks` would give.

    If it raises, what `out` holds is no vector and must not leave the device.
    """
    masks = tuple(masks)
    if not masks:
        raise UsageError("a vector without a mask would leave the device in the clear; give at least one mask")
    _write(out, values, weight, quantiser, rounding, masks=masks, threads=threads)


def add_masks(vector: Words, masks: Iterable[Mask], ring: Ring, *, threads: int = 1) -> None:
    """Add every mask to the vector, or subtract it, as its sign says, in place."""
    masks = tuple(masks)

    def work(start: int, stop: int) -> None:
        masking = _Masking(masks, ring, start, _Room(ring))
        for low in range(start, stop, PIECE):
            masking.add_into(vector[low : min(low + PIECE, stop)])

    _check_vector(vector, len(vector), ring)
    _in_stretches(len(vector), threads, ring, work)


def _write(
    out: Words,
    values: Floats,
    weight: int,
    quantiser: Quantiser,
    rounding: Seed,
    *,
    masks: tuple[Mask, ...],
    threads: int,
) -> None:
    if values.ndim != 1 or values.dtype not in FLOATS:
        raise UsageError(f"values are of shape {values.shape} and {values.dtype}; give one row of floats")
    ring, extra = quantiser.ring, quantiser.extra_words
    _check_vector(out, len(values) + extra, ring)
    weight = quantiser.check_weight(weight)
    values = _finite(values)

    def work(start: int, stop: int) -> None:
        room = _Room(ring)
        levels = _Rounding(quantiser, weight, rounding, start, room)
        masking = _Masking(masks, ring, start, room)
        for low in range(start, stop, PIECE):
            piece = out[low : min(low + PIECE, stop)]
            if len(part := values[low : low + len(piece)]):
                levels.words_into(piece[: len(part)], part)
            masking.add_into(piece)

    out[-extra:] = (weight, *[1] * ring.check_words)
    _in_stretches(len(out), threads, ring, work)


def _check_vector(vector: Words, size: int, ring: Ring) -> None:
    if vector.dtype != ring.dtype or vector.shape != (size,):
        raise UsageError(
            f"the vector is of shape {vector.shape} and {vector.dtype}; give {size} words of {ring.dtype}"
        )


def _in_stretches(words: int, threads: int, ring: Ring, work: Callable[[int, int], None]) -> None:
    """Call work(start, stop) for stretches of whole blocks, one for each thread."""
    if threads < 1:
        raise UsageError(f"{threads} threads cannot work; give 1 or more")
    if threads == 1 or not ring.wraps:  # modulo the prime, where a mask's words lie shows only on the way
        work(0, words)
        return
    block = BLOCK_BYTES // ring.dtype.itemsize
    length = max(math.ceil(words / threads / block), 1) * block
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda start: work(start, min(start + length, words)), range(0, words, length)):
            pass
