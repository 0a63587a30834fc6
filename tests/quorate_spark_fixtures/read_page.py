"""Reads a page of a report as a browser would: its tags, its texts, and that all are closed."""

from html.parser import HTMLParser

VOID = {"meta"}


class PageRead(HTMLParser):
    """The content of a page.  `text`: with single spaces; `labels`: of pictures, by caption."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.headings: list[str] = []
        self.codes: list[str] = []
        self.commands: list[str] = []
        self.labels: dict[str, str] = {}
        self.policy = ""
        self.style = ""
        self._open: list[str] = []
        self._words: list[str] = []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._words).split())

    def section(self, title: str) -> str:
        """The words from this heading to the next one."""
        assert title in self.headings
        _, _, rest = self.text.partition(f"§ {title} ")
        return rest.partition(" § ")[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self.attributes |= set(given)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""
        if tag == "svg":
            label = given["aria-label"] or ""
            self.labels[label.partition(":")[0]] = label
        if tag in ("h2", "section"):
            self._words.append("§" if tag == "h2" else "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        within = self._open[-1] if self._open else ""
        if within == "style":
            self.style += data
            return
        if within in ("title", "text"):
            return
        if within in ("h1", "h2"):
            self.headings.append(data)
        if within == "code":
            self.codes.append(data)
        if within == "pre":
            self.commands += data.split("\n")
        self._words.append(data)

    def close(self) -> None:
        super().close()
        assert not self._open, self._open


def read_page(page: bytes) -> PageRead:
    """Read a page; every element must be closed."""
    read = PageRead()
    read.feed(page.decode())
    read.close()
    return read
