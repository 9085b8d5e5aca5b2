"""The weak privacy level: elimination, proofs, search."""
