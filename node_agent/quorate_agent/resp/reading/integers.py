"""Parses integers and expiry times as strictly as Redis does."""

INTEGER_MAX = 2**63 - 1
INTEGER_MIN = -(2**63)
_DIGITS_MAX = 20  # "-9223372036854775808"


def parse_integer(text: bytes) -> int | None:
    """Return the signed 64-bit integer that `text` spells, else None.

    Only the canonical spelling counts: no spaces, no `+`, no leading zeros."""
    if len(text) > _DIGITS_MAX:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    if b"%d" % number != text or not INTEGER_MIN <= number <= INTEGER_MAX:
        return None
    return number


def parse_count(words: list[bytes]) -> int | None:
    """Return the count in the optional last word: 1 without it, None if it is not a count."""
    if not words:
        return 1
    number = parse_integer(words[0])
    return None if number is None or number < 0 else number


def expiry_ms(amount: int, unit_ms: int, base_ms: int) -> int | None:
    """Return wall milliseconds of `amount` units after `base_ms`; None if that exceeds 64 bits."""
    at_ms = amount * unit_ms
    if not INTEGER_MIN <= at_ms <= INTEGER_MAX or at_ms + base_ms > INTEGER_MAX:
        return None
    return at_ms + base_ms
