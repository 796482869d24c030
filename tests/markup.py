"""A strict reader of HTML: tags and texts of a page, and an error where a tag is not closed.

reader = Checked()
reader.feed("<p>text</p>")
assert reader.text == ["text"] and reader.open == []
"""

from __future__ import annotations

import html.parser

VOID = {"meta", "input", "br", "wbr", "link", "img"}


class Checked(html.parser.HTMLParser):
    """Collects tags and texts, and fails where a tag is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(text)
