"""The annotation of a Zone into which rows of an export are being imported."""

from typing import NamedTuple, Self

from quorate.wire.schema.names import GROUP

RESTORING = f"{GROUP}/restoring"
"""The annotation of a Zone into which rows of an export are being imported.

Until it is removed the zone may have a part of the rows, and is not Available.
"""
_NON_EMPTY = ".into-non-empty"
_NOT_BEGUN = ".not-begun"
RUN_WORD_LENGTH = 8
"""Characters of the random word of `quorate import`."""


class Restoring(NamedTuple):
    """The content of the annotation: `PLACE#EXPORT_ID.RUN`, and whether the zone may have had keys.

    `run` is a random word of the command that wrote it last, or the uid of a ZoneRestore.
    `not_begun`: it is of a ZoneRestore that has not made the Job that imports, and there was no
    import before it.  So the zone has no rows of the export yet.
    """

    place: str
    export_id: str = ""
    run: str = ""
    into_non_empty: bool = False
    not_begun: bool = False

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return what an annotation says; None if it is empty."""
        if not text:
            return None
        place, found, rest = text.rpartition("#")
        if not found:
            return cls(text)
        not_begun = rest.endswith(_NOT_BEGUN)
        rest = rest.removesuffix(_NOT_BEGUN)
        export_id, _, run = rest.removesuffix(_NON_EMPTY).partition(".")
        return cls(place, export_id, run, rest.endswith(_NON_EMPTY), not_begun)

    @property
    def is_of_restore(self) -> bool:
        """Whether a ZoneRestore wrote it last: its uid is longer than the word of a command."""
        return len(self.run) > RUN_WORD_LENGTH

    @property
    def text(self) -> str:
        """The annotation's value."""
        ends = _NON_EMPTY * self.into_non_empty + _NOT_BEGUN * self.not_begun
        return f"{self.place}#{self.export_id}.{self.run}{ends}"
