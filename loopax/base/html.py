"""Self-contained HTML, for a document or a notebook's cell.

All styles stand under one class, so that a notebook's own page stays as it is. They follow the
reader's light or dark setting, and in a notebook the notebook's theme.
"""

from __future__ import annotations

from html import escape


def theme(page: str) -> str:
    """The style that all pages share, for elements under the class ``page``."""
    me = f".{page}"
    return f"""
{me}{{color-scheme:light dark;background:Canvas;color:CanvasText;padding:1rem;
font:14px/1.5 system-ui,sans-serif}}
[data-jp-theme-light="true"] {me},.vscode-light {me}{{color-scheme:light}}
[data-jp-theme-light="false"] {me},.vscode-dark {me}{{color-scheme:dark}}
{me} pre{{font:12px/1.45 ui-monospace,monospace;overflow-x:auto;background:none;color:inherit}}
{me} figure{{margin:.6rem 0;overflow-x:auto}}
{me} svg text{{fill:CanvasText;font:11px ui-monospace,monospace}}
"""


def document(title: str, page: str, body: str) -> str:
    """A whole document around ``body``, which has the style and an element of the class ``page``."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title>"
        f"<style>body{{margin:0}} .{page}{{min-height:100vh;box-sizing:border-box}}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )
