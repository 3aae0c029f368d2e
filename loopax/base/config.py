"""``loopax.config``: the options of a process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING


@dataclass
class Config:
    """Options of a process, available as ``loopax.config``. They do not affect results.

    Parameters
    ----------
    progress
        Whether a status line appears while passes, tracing or native compilation take more than two
        seconds. None: in a notebook, and in a terminal, by rich if it is installed; elsewhere as
        records of the logger ``loopax``, if it takes level INFO. True: elsewhere on stderr, too. False:
        nowhere.

    Examples
    --------
    >>> import loopax
    >>> loopax.config.progress = False
    >>> loopax.config
    Config(progress=False)
    >>> loopax.config.progress = None
    """

    progress: bool | None = None

    if not TYPE_CHECKING:  # type checkers know the fields

        def __setattr__(self, name: str, value: object) -> None:
            if name not in self.__dataclass_fields__:
                raise AttributeError(
                    f"loopax.config has no {name!r}. It has {', '.join(self.__dataclass_fields__)}."
                )
            if not (value is None or isinstance(value, bool)):
                raise ValueError(
                    f"loopax.config.{name} must be True, False or None, got {value!r}."
                )
            super().__setattr__(name, value)


config = Config()
