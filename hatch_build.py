"""The package's page: README.md, whose links lead into the repository, and the addresses beside it.

The repository's address stands in README.md alone, in the command that clones it.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackagePage(MetadataHookInterface):
    """``readme`` and ``urls`` of the metadata."""

    def update(self, metadata):
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = re.search(r"^git clone (\S+)", text, re.MULTILINE)[1]
        metadata["readme"] = {"content-type": "text/markdown", "text": linked(text, address)}
        metadata["urls"] = {
            "Repository": address,
            "Documentation": f"{address}/blob/main/docs/index.md",
            "Changes": f"{address}/blob/main/CHANGELOG.md",
        }


def linked(text, address):
    """``text`` with each link and picture that is a path in the repository as an address."""

    def replaced(found):
        kind = "raw" if found["picture"] else "blob"
        return f"{found['picture']}{found['words']}({address}/{kind}/main/{found['path']})"

    return re.sub(
        r"(?P<picture>!?)(?P<words>\[[^]]*\])\((?!https?:|#)(?P<path>[^)]+)\)", replaced, text
    )
