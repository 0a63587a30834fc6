"""Words that commands take for numbers, or should not, and other values of every odd kind."""

from random import Random

# None of these is a time to live that ends while a stream runs.
FAR_INTEGERS = (
    b"0", b"-1", b"9223372036854775807", b"-9223372036854775808", b"9223372036854775806",
    b"9223372036854775", b"9223372036854776", b"-9223372036854775", b"-9223372036854776",
)  # fmt: skip
INTEGERS = (*FAR_INTEGERS, b"1", b"2", b"10", b"100")
NOT_INTEGERS = (
    b"", b" 1", b"1 ", b"+1", b"01", b"-0", b"1.0", b"1e3", b"0x1", b"1_0", b"x", b"--1", b"-",
    b"9223372036854775808", b"-9223372036854775809", b"99999999999999999999999", b"1\x00",
    "\u0661".encode(), b"1\r\n",
)  # fmt: skip
TEXTS = (b"", b"value", b"\x00", b"\r\n", b"$3\r\nabc\r\n", b"*~%>|", b"x" * 300, "\u00e9".encode())
FLOATS = (
    b"0.1", b"-0.1", b"3.0e3", b"1e-17", b"5e-18", b"-1e-20", b"1e18", b"1e-4940", b"0x10",
    b"0x1p-3", b".5", b"5.", b"+1.5", b"1e400", b"-1e4932", b"1.18973149535723176502e4932",
    b"0e99999999999", b"17179869184.000000001", b"123456789012345678901234567890", b"-0.0", b"inf",
    b"-Infinity", b"0x.8", b"000001.50",
)  # fmt: skip
NOT_FLOATS = (
    b"nan", b"1e", b".", b"", b"0x", b" 1", b"1 ", b"1e5000", b"1e-5000", b"1e99999999999", b"1,5",
    b"1e+", b"--1", b"infin", b"1.5f", b"1_0", b"0x1g", b"1\x00", b"\xd9\xa1",
)  # fmt: skip


def random_float(random: Random) -> bytes:
    """Mostly one that can be added to."""
    kind = random.random()
    if kind < 0.4:
        digits = random.randint(0, 20)
        return b"%d.%0*d" % (random.randint(-(10**6), 10**6), digits, random.getrandbits(40))
    if kind < 0.6:
        return b"%de%d" % (random.getrandbits(70), random.randint(-40, 20))
    if kind < 0.85:
        return random.choice((*FLOATS, *INTEGERS))
    return random.choice(NOT_FLOATS)
