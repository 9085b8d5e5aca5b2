"""Published vectors, computed once more before they are written, and what must be refused beside them."""

from pathlib import Path

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from primitives import (
    IDENTITY,
    LOW_ORDER,
    MASK,
    PRIME,
    SEAL,
    SMALL_ORDER,
    case,
    expand,
    extract,
    identity_public,
    refused,
    seal_public,
    sign,
    x25519,
)

X25519_ITERATED = {
    1: "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079",
    1000: "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51",
}


def published(title):
    """Name and fields of each vector in one section of the file."""
    sections = (Path(__file__).parent / "published.txt").read_text(encoding="utf-8").split("\n# ")
    section = next(section for section in sections if section.startswith(title))
    for vector in section.strip().split("\n\n")[1:]:
        name, *fields = vector.replace("\n ", "").split("\n")
        yield name, *(bytes.fromhex(field.replace("-", "")) for field in fields)


def hkdf_cases():
    for name, secret, salt, info, prk, okm in published("HKDF"):
        assert extract(secret, salt) == prk
        assert expand(prk, info, len(okm)) == okm
        yield case(name, secret=secret, salt=salt, info=info, prk=prk, okm=okm)


def x25519_cases():
    for name, secret, peer, shared in published("X25519"):
        assert x25519(secret, peer) == shared
        yield case(name, secret=secret, peer=peer, shared=shared, iterations=1)
    start = (9).to_bytes(32, "little")
    for iterations, shared in X25519_ITERATED.items():
        k = u = start
        for _ in range(iterations):
            k, u = x25519(k, u), k
        assert k.hex() == shared
        yield case("RFC 7748 5.2, iterated", secret=start, peer=start, shared=shared, iterations=iterations)
    for peer in LOW_ORDER:
        yield refused("low order", secret=SEAL["ana"], peer=peer, iterations=1)
    for length in (0, 31, 33):
        yield refused("not 32 bytes", secret=SEAL["ana"], peer=bytes([9] * length), iterations=1)


def aes_cases():
    for name, key, counter, plain, cipher in published("AES-256-CTR"):
        assert Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(plain) == cipher
        yield case(name, key=key, counter=counter, plain=plain, cipher=cipher)


def ed25519_cases():
    for name, secret, public, message, signature in published("Ed25519"):
        assert identity_public(secret) == public
        assert sign(secret, message) == signature
        yield case(name, secret=secret, public=public, message=message, signature=signature)


def chacha_cases():
    for name, key, nonce, data, plain, cipher in published("ChaCha20-Poly1305"):
        assert ChaCha20Poly1305(key).encrypt(nonce, plain, data) == cipher
        yield case(name, key=key, nonce=nonce, data=data, plain=plain, cipher=cipher)


def key_cases():
    """What a charter may hold as a public key."""
    yield case("an identity key", kind="identity", public=identity_public(IDENTITY["ana"]))
    yield case("a seal key", kind="seal", public=seal_public(SEAL["ana"]))
    yield case("a mask key", kind="mask", public=seal_public(MASK["ana"]))
    for kind, small in (("identity", SMALL_ORDER), ("seal", LOW_ORDER), ("mask", LOW_ORDER)):
        for public in small:
            yield refused("small order", kind=kind, public=public)
        for length in (0, 31, 33):
            yield refused("not 32 bytes", kind=kind, public=bytes([9] * length))
        for high in (0, 2**255):
            yield refused("not below p", kind=kind, public=(PRIME + 9 + high).to_bytes(32, "little"))
    yield refused("highest bit set", kind="seal", public=(9 + 2**255).to_bytes(32, "little"))


FILES = {
    "hkdf": hkdf_cases,
    "x25519": x25519_cases,
    "aes_256_ctr": aes_cases,
    "ed25519": ed25519_cases,
    "chacha20_poly1305": chacha_cases,
    "public_keys": key_cases,
}
