"""Constraints for pip: each dependency in the lowest version that pyproject.toml allows.

`make test-lowest` installs them: python tests/lowest_versions.py > constraints.txt
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def dependencies() -> list[str]:
    """What pyproject.toml says that loopax needs in any case."""
    return tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]


def constraints() -> list[str]:
    """``name==floor`` for each dependency; one without a floor is an error."""
    floors = [re.fullmatch(r"([\w.-]+)>=([\w.]+)(,.*)?", line) for line in dependencies()]
    assert all(floors), f"a dependency without a floor: {dependencies()}"
    return [f"{actual[1]}=={actual[2]}" for actual in floors if actual]


if __name__ == "__main__":
    print("\n".join(constraints()))
