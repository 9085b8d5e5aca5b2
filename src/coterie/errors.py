"""The one exception tree: whose fault it is decides the class."""


class CoterieError(Exception):
    """Anything that Coterie raises on purpose."""


class UsageError(CoterieError, ValueError):
    """The caller asked for what cannot be: the message says what is wrong, with the value, and what to do."""


class PeerError(CoterieError):
    """The other side of a protocol broke a rule: the message says what was expected, what came, from whom."""


class TooFewUsersError(CoterieError):
    """Too few users were left to finish a round; nobody did anything wrong."""
