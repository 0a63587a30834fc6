"""What a flood was answered is counted from raw replies."""

from quorate_cluster.flood import Pour, commands


def _counted(replies: bytes) -> Pour:
    pour = Pour(0, [], 1)
    pour.count(replies)
    return pour


def test_every_reply_is_counted_once() -> None:
    pour = _counted(b"+OK\r\n$3\r\nxxx\r\n$-1\r\n-OOM later\r\n+OK\r\n")

    assert (pour.answered, pour.refused, pour.errors) == (5, 1, 0)


def test_other_errors_are_told_apart_from_refusals() -> None:
    pour = _counted(b"-OOM later\r\n-MOVED 1 127.0.0.1:7\r\n+OK\r\n")

    assert (pour.answered, pour.refused, pour.errors) == (3, 1, 1)
    assert pour.first_error == "-MOVED 1 127.0.0.1:7"


def test_commands_of_keys_of_one_length_have_one_length() -> None:
    made = commands([b"a1", b"b2"], b"x")

    assert made == [
        b"*3\r\n$3\r\nSET\r\n$2\r\na1\r\n$1\r\nx\r\n",
        b"*3\r\n$3\r\nSET\r\n$2\r\nb2\r\n$1\r\nx\r\n",
    ]
