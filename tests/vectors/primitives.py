"""What the scripts of the vectors have in common: encodings, keys, and words of a keystream, by the standards."""

import hashlib
import hmac
import struct
from itertools import count, islice

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

PRIME = 2**255 - 19
RING_16, RING_32, PRIME_31 = 2**16, 2**32, 2**31 - 1


def case(name, *, success=True, **fields):
    """One case: bytes become hex."""
    shown = {key: value.hex() if isinstance(value, bytes) else value for key, value in fields.items()}
    return {"name": name, **shown, "success": success}


def refused(name, **fields):
    """A case that must not be accepted."""
    return case(name, success=False, **fields)


# --- docs/protocol.md §2 and §3, once more ----------------------------------------------------------------


def word(number):
    return number.to_bytes(8, "little")


def enc(*fields):
    contents = [word(f) if isinstance(f, int) else f.encode() if isinstance(f, str) else f for f in fields]
    return b"".join(word(len(content)) + content for content in contents)


def sha256(data):
    return hashlib.sha256(data).digest()


def expand(key, info, length=32):
    blocks, block = b"", b""
    for number in range(1, -(-length // 32) + 1):
        block = hmac.digest(key, block + info + bytes([number]), "sha256")
        blocks += block
    return blocks[:length]


def extract(secret, salt):
    return hmac.digest(salt or bytes(32), secret, "sha256")


def x25519(secret, peer):
    return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(peer))


def sign(secret, message):
    return Ed25519PrivateKey.from_private_bytes(secret).sign(message)


def seal_public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def identity_public(secret):
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def word_bytes(modulus):
    """How many bytes a word of a ring has."""
    return 2 if modulus == RING_16 else 4


def keystream_words(seed, modulus):
    """AES-256 of the counters 0, 1, 2, …; for the prime, 31 bits of each word, unless they are q itself."""
    encryptor = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()  # noqa: S305 - counter mode by hand
    for counter in count():
        block = encryptor.update(counter.to_bytes(16, "big"))
        for number in struct.unpack("<8H" if modulus == RING_16 else "<4I", block):
            if modulus != PRIME_31:
                yield number
            elif number & PRIME_31 != PRIME_31:
                yield number & PRIME_31


def words(seed, modulus, start=0, number=16):
    """Some words of a keystream, as little-endian bytes."""
    drawn = islice(keystream_words(seed, modulus), start, start + number)
    return b"".join(each.to_bytes(word_bytes(modulus), "little") for each in drawn)


# --- the points of small order --------------------------------------------------------------------------


def square_root(number):
    root = pow(number, (PRIME + 3) // 8, PRIME)
    if root * root % PRIME != number:
        root = root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    return root if root * root % PRIME == number else None


def torsion():
    """y of the points of edwards25519 of order 8, which double to y = 0: d·y⁴ + 2·y² - 1 = 0 (with y² = -x²)."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    for root in (square_root((1 + d) % PRIME), -square_root((1 + d) % PRIME)):
        y = square_root((root - 1) * pow(d, -1, PRIME) % PRIME)
        if y is not None:
            return y, PRIME - y
    raise AssertionError


def encodings(coordinates):
    """All 32 bytes that mean one of these coordinates: also those not below p, and with the highest bit set."""
    numbers = [c + multiple for c in coordinates for multiple in (0, PRIME) if c + multiple < 2**255]
    return [(number + high).to_bytes(32, "little") for number in numbers for high in (0, 2**255)]


SMALL_ORDER = encodings([0, 1, PRIME - 1, *torsion()])
# The birational map u = (1 + y)/(1 - y), and u = -1, which is of order 4 on the twist.
LOW_ORDER = encodings([0, 1, PRIME - 1, *((1 + y) * pow(1 - y, -1, PRIME) % PRIME for y in torsion())])


# --- five users and their keys -------------------------------------------------------------------------------

USERS = ("ana", "bob", "zoë", "\uff5e", "\U0001f600")  # UTF-16 would put the last before the one before it
SEAL = {user: sha256(f"coterie vector: seal key of {user}".encode()) for user in USERS}
MASK = {user: sha256(f"coterie vector: mask key of {user}".encode()) for user in USERS}
SHARE = {user: sha256(f"coterie vector: share key of {user}".encode()) for user in USERS}
IDENTITY = {user: sha256(f"coterie vector: identity key of {user}".encode()) for user in USERS}
MEMBERS = [(user, identity_public(IDENTITY[user]), seal_public(SEAL[user])) for user in USERS]
