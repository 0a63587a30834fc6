"""What a client may send that is no clean stream of commands: inline lines, garbage, mutations."""

from random import Random

from quorate_differential.raw_replies import encode_command

_WORDS = (b"k", b"{a}1", b"", b"value", b"7", b"x" * 40, b"\r\n", b"*1\r\n", b"$1\r\n", b"\x00~%>|")
_MARKS = (
    b"*",
    b"$",
    b"\r",
    b"\n",
    b"\r\n",
    b"+",
    b":",
    b"%",
    b"~",
    b"-1",
    b"0",
    b"99999999999",
    b'"',
)

# Each must be answered as Redis answers it, up to the moment when the connection closes.
ODD_STREAMS: tuple[bytes, ...] = (
    b"",
    b"\r\n",
    b"\r\n\r\nPING\r\n",
    b"PING\r\n",
    b"PING\n",
    b"  ping   hello  \r\n",
    b"ping 'a b'\r\nping \"a\\x41\\n\\q\"\r\n",
    b"ping 'it\\'s'\r\nping a\"b c\"\r\n",
    b"ping \"a\"b\r\n",
    b"ping 'a\r\n",
    b"ping \"\"\r\nping ''\r\n",
    b"ping a\x00b\r\n",
    b"set k \"v\"\r\nget k\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n",
    b"*0\r\nPING\r\n",
    b"*-1\r\nPING\r\n",
    b"*-5\r\nPING\r\n",
    b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPI",
    b"*1\r\n$4\r\nPINGxxPING\r\n",
    b"*1\r\n4\r\nPING\r\n",
    b"*1\r\n+PING\r\n",
    b"*1\r\n:4\r\n",
    b"*1\r\n%1\r\n",
    b"*1\r\n\r\n",
    b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n*1\r\n$1\r\na\r\n",
    b"*x\r\n",
    b"*\r\nPING\r\n",
    b"*01\r\n$4\r\nPING\r\n",
    b"*+1\r\n$4\r\nPING\r\n",
    b"* 1\r\n$4\r\nPING\r\n",
    b"*2147483648\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\n$x\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n$ 4\r\nPING\r\n",
    b"*1\r\n$\r\n",
    b"*1\r\n$67108865\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$99999999999999999999\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
    b"*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n",
    b"QUIT now\r\nPING\r\n",
    b"x" * 70_000,
    b"*" + b"1" * 70_000,
    b"*1\r\n$" + b"1" * 70_000,
    b"*1\r\n" + b"x" * 70_000,
    b"%1\r\n$1\r\na\r\n$1\r\nb\r\n",
    b"~1\r\n$4\r\nPING\r\n",
    b">1\r\n$4\r\nPING\r\n",
    b"_\r\n",
    b"$4\r\nPING\r\n",
    b":1\r\n",
    b"+PING\r\n",
    b"\x00\x01\x02\r\n",
    b"\xff" * 100 + b"\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    encode_command([b"MSET", *[b"{a}%d" % (i % 97) for i in range(1200)]]) + b"PING\r\n",
    encode_command([b"SET", b"k", b"v" * 200_000]) + encode_command([b"STRLEN", b"k"]),
)  # fmt: skip


def random_stream(random: Random) -> bytes:
    """Some commands that answer the same at any time, then bytes changed, cut, or put in."""
    stream = b"".join(encode_command(_plain_command(random)) for _ in range(random.randint(1, 6)))
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        stream = _mutated(random, stream)
    return stream


def _plain_command(random: Random) -> list[bytes]:
    key, value = random.choice(_WORDS), random.choice(_WORDS)
    return random.choice(
        (
            [b"SET", key, value],
            [b"GET", key],
            [b"INCR", key],
            [b"DEL", key],
            [b"MGET", key, key],
            [b"PING"],
            [b"ECHO", value],
            [b"APPEND", key, value],
            [value, key],
        )
    )


def _mutated(random: Random, stream: bytes) -> bytes:
    at = random.randrange(len(stream) + 1)
    match random.randrange(5):
        case 0:
            return stream[:at] + random.choice(_MARKS) + stream[at:]
        case 1:
            return stream[:at] + stream[at + random.randint(1, 9) :]
        case 2:
            return stream[:at] + random.randbytes(random.randint(1, 4)) + stream[at + 1 :]
        case 3:
            return stream[:at]
        case _:
            return stream[:at] + stream[random.randrange(len(stream) + 1) :]
