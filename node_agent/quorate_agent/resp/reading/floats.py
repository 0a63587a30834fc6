"""Numbers with a fraction: parsed, added and written exactly as in Redis.

Redis computes in the 80-bit numbers of x86 processors, with 64 significant bits, and writes 17
decimals.  Python has no such type, so they are fractions here, rounded to such numbers.
"""

import re
from fractions import Fraction
from typing import Final

_TEXT_BYTES_MAX: Final = 5 * 1024 - 1
_MANTISSA_BITS: Final = 64
_EXPONENT_MIN: Final = -16_445  # of the smallest step
_DECIMALS: Final = 17
# Beyond this exponent, of 2 or of 10, a number of so many bytes is certainly infinite or zero.
_EXPONENT_MAX: Final = 50_000
# Python reads no more digits at once; the digits behind them make no difference.
_DIGITS_MAX: Final = 4_000

INFINITE: Final = Fraction(2**16_384)
"""This and everything above it stand for infinity."""

_DECIMAL = re.compile(rb"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?")
_HEXADECIMAL = re.compile(
    rb"([+-]?)0[xX](?=\.?[0-9a-fA-F])([0-9a-fA-F]*)(?:\.([0-9a-fA-F]*))?(?:[pP]([+-]?[0-9]+))?"
)
_INFINITY = re.compile(rb"([+-]?)(?:inf|infinity)", re.IGNORECASE)


def parse_float(text: bytes) -> Fraction | None:
    """Return the number that `text` spells, +-INFINITE for infinity; None if it is no number."""
    if len(text) > _TEXT_BYTES_MAX:
        return None
    if found := _DECIMAL.fullmatch(text):
        number = _scaled(found, 10, 1)
    elif found := _HEXADECIMAL.fullmatch(text):
        number = _scaled(found, 2, 4)
    elif found := _INFINITY.fullmatch(text):
        return -INFINITE if found[1] == b"-" else INFINITE
    else:
        return None
    if number is None or number >= INFINITE:
        return None
    return -number if found[1] == b"-" else number


def add_floats(augend: Fraction, addend: Fraction) -> Fraction | None:
    """Return the sum; None if it is infinite or not a number."""
    if is_infinite(augend) or is_infinite(addend):
        return None
    total = augend + addend
    total = _rounded(total) if total >= 0 else -_rounded(-total)
    return None if is_infinite(total) else total


def is_infinite(number: Fraction) -> bool:
    """Return whether the number stands for infinity."""
    return abs(number) >= INFINITE


def float_text(number: Fraction) -> bytes:
    """Return the number as Redis writes it: no exponent, at most 17 decimals, no trailing zeros."""
    scaled = round(abs(number) * 10**_DECIMALS)  # halves to even, as in C
    whole, decimals = divmod(scaled, 10**_DECIMALS)
    text = b"%b.%017d" % (_integer_text(whole), decimals)
    text = text.rstrip(b"0").rstrip(b".")
    return b"-" + text if number < 0 and scaled else text


def _scaled(found: re.Match[bytes], base: int, digit_exponent: int) -> Fraction | None:
    """Return the number without its sign, rounded; None if it is too small to differ from zero."""
    decimals = found[3] or b""
    digits = (found[2] + decimals).lstrip(b"0")
    if not digits:
        return Fraction(0)
    dropped = max(len(digits) - _DIGITS_MAX, 0)
    exponent = _exponent(found[4]) + digit_exponent * (dropped - len(decimals))
    if abs(exponent) > _EXPONENT_MAX:
        return None
    kept = int(digits[:_DIGITS_MAX], 10 if base == 10 else 16)
    return _rounded(kept * Fraction(base) ** exponent) or None


def _exponent(text: bytes | None) -> int:
    """Return the exponent, capped where it makes no difference: it may have thousands of digits."""
    if text is None:
        return 0
    digits = text.lstrip(b"+-").lstrip(b"0")
    size = 10**9 if len(digits) > 9 else int(digits or b"0")
    return -size if text[:1] == b"-" else size


def _integer_text(number: int) -> bytes:
    """Return the digits; Python refuses to write more than 4300 at once."""
    high, low = divmod(number, 10**4000)
    return b"%d%04000d" % (high, low) if high else b"%d" % low


def _rounded(number: Fraction) -> Fraction:
    """Return the nearest (ties: even) of the 80-bit numbers; `number` >= 0."""
    numerator, denominator = number.numerator, number.denominator
    exponent = numerator.bit_length() - denominator.bit_length() - _MANTISSA_BITS
    exponent = max(exponent, _EXPONENT_MIN)
    mantissa = _divided(numerator, denominator, exponent)
    if mantissa.bit_length() > _MANTISSA_BITS:
        # Rounded up to a power of two, or one bit too fine: bit lengths are exact only to one.
        mantissa = _divided(numerator, denominator, exponent + 1)
        exponent += 1
    return Fraction(mantissa) * Fraction(2) ** exponent


def _divided(numerator: int, denominator: int, exponent: int) -> int:
    """Return numerator / denominator / 2**exponent, rounded, ties to even."""
    if exponent >= 0:
        return round(Fraction(numerator, denominator << exponent))
    return round(Fraction(numerator << -exponent, denominator))
