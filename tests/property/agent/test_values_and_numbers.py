"""Whatever strings and members clients choose: they come back, and mean nothing else."""

from fractions import Fraction
from zlib import crc32

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorate_agent.resp.commands.types.member_scan import PAGE_MIN, member_page
from quorate_agent.resp.reading.floats import INFINITE, add_floats, float_text, parse_float
from quorate_agent.resp.tables.table import resolve
from quorate_agent.resp.values.value import (
    MARKER,
    Kind,
    kind_of,
    pack_elements,
    pack_fields,
    pack_members,
    pack_string,
    string_of,
    unpack_elements,
    unpack_fields,
    unpack_members,
)
from quorate_differential.dict_view import DictView

quick = settings(derandomize=True, max_examples=150, deadline=None)

STRINGS = st.binary(max_size=40) | st.binary(max_size=4).map(lambda tail: MARKER + tail)


@quick
@given(STRINGS)
@example(b"")
@example(MARKER)
@example(MARKER + b"h\x80")
def test_every_string_of_bytes_can_be_stored(text: bytes) -> None:
    value = pack_string(text)

    assert kind_of(value) is Kind.STRING
    assert string_of(value) == text
    assert len(value) - len(text) == text.startswith(MARKER)


@quick
@given(st.dictionaries(STRINGS, STRINGS), st.lists(STRINGS))
def test_a_collection_comes_back_in_its_order_and_is_no_string(
    fields: dict[bytes, bytes], elements: list[bytes]
) -> None:
    values = [pack_fields(fields), pack_members(elements), pack_elements(elements)]

    assert [kind_of(value) for value in values] == [Kind.HASH, Kind.SET, Kind.LIST]
    assert [string_of(value) for value in values] == [None] * 3
    assert list(unpack_fields(values[0]).items()) == list(fields.items())
    assert list(unpack_members(values[1])) == list(dict.fromkeys(elements))
    assert unpack_elements(values[2]) == elements


@quick
@given(STRINGS, STRINGS, st.integers(-12, 12), st.integers(-12, 12), st.integers(0, 60))
def test_string_commands_do_not_see_how_a_string_is_stored(
    text: bytes, tail: bytes, first: int, last: int, offset: int
) -> None:
    view = DictView()

    assert _run(view, b"SET", b"k", text) == b"+OK\r\n"
    assert _run(view, b"GET", b"k") == b"$%d\r\n%b\r\n" % (len(text), text)
    assert _run(view, b"STRLEN", b"k") == b":%d\r\n" % len(text)
    assert _run(view, b"APPEND", b"k", tail) == b":%d\r\n" % len(text + tail)
    text += tail
    if first >= 0 and last >= 0:
        part = text[first : last + 1]
        assert _run(view, b"GETRANGE", b"k", b"%d" % first, b"%d" % last) == (
            b"$%d\r\n%b\r\n" % (len(part), part)
        )
    _run(view, b"SETRANGE", b"k", b"%d" % offset, tail)
    if tail:
        text = text[:offset].ljust(offset, b"\0") + tail + text[offset + len(tail) :]
    assert _run(view, b"GETDEL", b"k") == b"$%d\r\n%b\r\n" % (len(text), text)
    assert view.rows == {}


@quick
@given(st.lists(STRINGS, min_size=1, max_size=12), st.integers(-14, 14), st.integers(-14, 14))
def test_a_trimmed_list_is_what_a_range_of_it_was(
    elements: list[bytes], first: int, last: int
) -> None:
    view = DictView()
    _run(view, b"RPUSH", b"k", *elements)
    bounds = b"%d" % first, b"%d" % last

    part = _run(view, b"LRANGE", b"k", *bounds)
    _run(view, b"LTRIM", b"k", *bounds)

    assert _run(view, b"LRANGE", b"k", b"0", b"-1") == part
    assert (b"k" in view.rows) == (part != b"*0\r\n")


@quick
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_are_added_as_integers_as_long_as_64_bits_can_tell(a: int, b: int) -> None:
    augend, addend = parse_float(b"%d" % a), parse_float(b"%d" % b)
    assert augend is not None
    assert addend is not None

    total = add_floats(augend, addend)

    assert total is not None
    if abs(a + b) <= 2**64:
        assert float_text(total) == b"%d" % (a + b)


@quick
@given(st.fractions(max_denominator=10**6).map(lambda number: number.limit_denominator(10**6)))
def test_a_number_is_read_as_exactly_as_64_bits_can_hold_it(number: Fraction) -> None:
    decimals = 30
    text = b"%de-%d" % (number * 10**decimals, decimals)
    exact = Fraction(int(number * 10**decimals), 10**decimals)

    parsed = parse_float(text)

    assert parsed is not None
    assert abs(parsed - exact) <= abs(exact) / 2**64
    assert abs(Fraction(float_text(parsed).decode()) - parsed) <= Fraction(1, 2 * 10**17)


@quick
@given(st.binary(max_size=30))
def test_no_text_makes_the_reader_of_numbers_fail(text: bytes) -> None:
    for candidate in (text, b"1" + text, b"1e" + text, b"0x" + text):
        number = parse_float(candidate)

        assert number is None or abs(number) <= INFINITE


@quick
@given(
    st.integers(PAGE_MIN - 2, 4 * PAGE_MIN),
    st.integers(0, 2**40),
    st.integers(1, 3_000),
    st.sampled_from([2_000, 10_000, 1 << 40]),
)
def test_pages_have_every_member_once(count: int, first: int, wanted: int, most: int) -> None:
    members = [b"%d" % number for number in range(first, first + count)]
    cursor, found = member_page(members, 0, wanted, most)
    while cursor:
        cursor, page = member_page(members, cursor, wanted, most)
        assert sum(map(len, page)) <= most + 2 * max(map(len, members))
        found += page

    assert sorted(found) == sorted(members)


@quick
@given(st.integers(0, PAGE_MIN * 3))
def test_a_page_begins_with_the_checksum_its_cursor_names(number: int) -> None:
    members = [b"%d" % each for each in range(PAGE_MIN * 3)]
    checksum = crc32(b"%d" % number)

    _, page = member_page([*members, b"%d" % number], checksum, 10**6, 1)

    assert b"%d" % number in page


def _run(view: DictView, *words: bytes) -> bytes:
    command = resolve(list(words))
    assert not isinstance(command, bytes)
    reply: bytes = command.handler(view, list(words))
    return reply
