"""Builds HTML whose texts are escaped: only what this module made is put in as it is."""

import html
from collections.abc import Iterable

_VOID = frozenset({"meta"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element.  Children that are not Markup are escaped, and so are attributes.

    `class_` is the attribute `class`, `aria_label` is `aria-label`.  Attributes that are None or
    False are left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Markup:
    """Return the children one after the other; those that are not Markup are escaped."""
    return Markup("".join(each if isinstance(each, Markup) else escaped(each) for each in children))


def escaped(text: str) -> Markup:
    """Return text as markup.  What cannot be seen, or turns the direction of text, is spelled."""
    seen = text if text.isprintable() else "".join(map(_visible, text))
    return Markup(html.escape(seen))


def _visible(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return character.encode("unicode_escape").decode("ascii")
