"""A name that means something else for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def changed(owner: Any, name: str, value: object) -> Iterator[None]:
    """`owner.name` is `value` for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
