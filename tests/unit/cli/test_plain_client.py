"""The client of `quorate cli` on machines without redis-cli."""

import io
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from quorate_cli.plain_client import PlainClient, run_lines, split_line
from quorate_cli.terminal.problem import Problem

Serve = Callable[..., int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts an agent that reads one command and sends one of `replies`, in turn; its port.

    `heard` is what it was sent, as bytes."""
    ends: list[Callable[[], None]] = []

    def begin(*replies: bytes, heard: list[bytes] | None = None) -> int:
        listener = socket.create_server(("127.0.0.1", 0))

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                for reply in replies:
                    data = connection.recv(65536)
                    if heard is not None:
                        heard.append(data)
                    connection.sendall(reply)

        thread = threading.Thread(target=run)
        thread.start()

        def end() -> None:
            thread.join(5)
            listener.close()

        ends.append(end)
        return int(listener.getsockname()[1])

    yield begin
    for end in ends:
        end()


def _run(port: int, *commands: list[bytes]) -> tuple[bytes, list[bool]]:
    """What was printed, and whether each went well."""
    output = io.BytesIO()
    client = PlainClient("127.0.0.1", port, output, is_terminal=False)
    try:
        went_well = [client.run(command) for command in commands]
    finally:
        client.close()
    return output.getvalue(), went_well


@pytest.mark.parametrize(
    ("reply", "printed"),
    [
        (b"+OK\r\n", b"OK\n"),
        (b":-3\r\n", b"-3\n"),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb\n"),
        (b"$0\r\n\r\n", b"\n"),
        (b"$-1\r\n", b"\n"),
        (b"*3\r\n$1\r\na\r\n*1\r\n:2\r\n-ERR no\r\n", b"a\n2\n(error) ERR no\n"),
        (b"*-1\r\n", b"\n"),
        (b"*0\r\n", b""),
    ],
)
def test_a_reply_is_printed_as_it_is(serve: Serve, reply: bytes, printed: bytes) -> None:
    assert _run(serve(reply), [b"get", b"a"]) == (printed, [True])


def test_on_a_terminal_an_absent_value_is_seen(serve: Serve) -> None:
    output = io.BytesIO()
    client = PlainClient("127.0.0.1", serve(b"$-1\r\n"), output, is_terminal=True)

    client.run([b"get", b"a"])

    client.close()
    assert output.getvalue() == b"(nil)\n"


def test_arguments_are_sent_unharmed(serve: Serve) -> None:
    heard: list[bytes] = []

    _run(serve(b"+OK\r\n", heard=heard), [b"set", b"", b"\xff\r\n -p"])

    assert heard == [b"*3\r\n$3\r\nset\r\n$0\r\n\r\n$6\r\n\xff\r\n -p\r\n"]


def test_an_error_is_told_in_the_agents_words(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, went_well = _run(serve(b"-WRONGTYPE Operation against a key\r\n"), [b"incr", b"a"])

    assert (printed, went_well) == (b"", [False])
    assert capsys.readouterr().err == "WRONGTYPE Operation against a key\n"


def test_moved_is_followed(serve: Serve) -> None:
    output = io.BytesIO()
    there = serve(b"$5\r\nhello\r\n")
    client = PlainClient(
        "127.0.0.1", serve(b"-MOVED 5 127.0.0.1:%d\r\n" % there), output, is_terminal=False
    )

    assert client.run([b"get", b"a"])

    client.close()
    assert output.getvalue() == b"hello\n"
    assert client.port == there


def test_moved_in_a_transaction_is_told(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    port = serve(b"+OK\r\n", b"-MOVED 5 127.0.0.1:1\r\n", b"+OK\r\n")

    _, went_well = _run(port, [b"multi"], [b"get", b"a"], [b"discard"])

    assert went_well == [True, False, True]
    assert "a transaction cannot follow a redirection" in capsys.readouterr().err


@pytest.mark.parametrize("reply", [b"", b"$5\r\nhel", b"*2\r\n:1\r\n", b"HTTP/1.1 400\r\n"])
def test_without_a_reply_the_outcome_is_unknown(serve: Serve, reply: bytes) -> None:
    with pytest.raises(Problem, match="whether incr was executed is unknown"):
        _run(serve(reply), [b"incr", b"a"])


def test_an_agent_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]

    with pytest.raises(Problem, match=f"127.0.0.1:{port} cannot be reached: connection refused"):
        _run(port, [b"get", b"a"])


def test_lines_are_executed_until_quit_and_one_error_is_an_error(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[bytes] = []
    client = PlainClient(
        "127.0.0.1", serve(b"-ERR no\r\n", b"+OK\r\n", heard=heard), io.BytesIO(), is_terminal=False
    )

    went_well = run_lines(client, [b"foo\n", b"\n", b'set "a\n', b"set a 'b c'\n", b"QUIT\n", b"x"])

    client.close()
    assert not went_well
    assert heard[1].endswith(b"$3\r\nb c\r\n")
    assert capsys.readouterr().err == 'ERR no\nquotes do not match: set "a\n'


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", []),
        (b"  get   a \n", [b"get", b"a"]),
        (rb'set "a b" "\x00\n\"\\"', [b"set", b"a b", b'\x00\n"\\']),
        (rb"set 'a\'b\n'", [b"set", rb"a'b\n"]),
        (b"set a ''", [b"set", b"a", b""]),
        (b'set "a', None),
        (b"set a'b'", None),
        (b'set "a"b', None),
    ],
)
def test_a_line_is_quoted_as_for_redis_cli(line: bytes, words: list[bytes] | None) -> None:
    assert split_line(line) == words
