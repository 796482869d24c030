"""Pages in notebooks: a table of the main numbers that every viewer shows, and the page in a frame of its own.

The frame runs the page's scripts without access to the notebook. Viewers that remove frames, such as GitHub, show the
table.
"""

from __future__ import annotations

import html

from .page import Page, rows_table


def embedded(page: Page, *, height: int = 720) -> str:
    """Return the HTML of a page for `_repr_html_`."""
    summary = rows_table({page.title: what, "value": value, "note": note} for what, value, note in page.facts)
    return (
        f'{summary}<iframe sandbox="allow-scripts" title="{html.escape(page.title)}" '
        f'srcdoc="{html.escape(page.text())}" style="width:100%;height:{height}px;border:0"></iframe>'
    )
