"""HOST:PORT as users write it: one rule, whoever reads it."""

import pytest

from quorate.facts.addresses import NotAnAddress, read_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.7:7100", "10.0.0.7", 7100),
        ("agent-1.main.svc:1", "agent-1.main.svc", 1),
        ("localhost:65535", "localhost", 65535),
        (f"{'a' * 63}.svc:1", f"{'a' * 63}.svc", 1),
        ("[fd00::7]:7100", "fd00::7", 7100),
        ("[::]:7100", "::", 7100),
    ],
)
def test_a_host_stands_before_its_port_and_an_ipv6_address_in_brackets(
    text: str, host: str, port: int
) -> None:
    assert read_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.7",
        ":7100",
        "10.0.0.7:",
        "10.0.0.7:0",
        "10.0.0.7:65536",
        "10.0.0.7:+1",
        "10.0.0.7:²",
        "10.0.0.7:٣",
        "::1:7100",
        "fd00::7",
        "[fd00::7]",
        "[fd00::7:7100",
        "fd00::7]:7100",
        "[10.0.0.7]:7100",
        "[agent-1]:7100",
        "[]:7100",
        "a b:7100",
        "http://agent:7100",
        f"{'a' * 64}.svc:7100",
    ],
)
def test_anything_else_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(NotAnAddress) as refused:
        read_address(text)

    assert str(refused.value) == (
        f"{text!r} is not an address: write host:port, for example 10.0.0.7:7100 or [fd00::7]:7100"
    )


def test_where_the_system_may_choose_the_port_it_may_be_0() -> None:
    assert read_address("[::1]:0", may_be_free=True) == ("::1", 0)
    with pytest.raises(NotAnAddress, match=r"for example .* \(port 0: a free one\)$"):
        read_address("::1:0", may_be_free=True)
