"""An answer: the values that are accepted, and whether what was found is one of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.random_programs.judging import difference


class NotAProgram(Exception):
    """PyTensor itself refuses it."""


class Answer:
    """Values that are accepted, each with how far a rounding reaches; the first is the reference's."""

    def __init__(self, gradient: bool = False) -> None:
        self.accepted: list[tuple[str, list[np.ndarray]]] = []
        self.far: list[np.ndarray] | None = None
        self.gradient = gradient
        self.defined = True
        self.finite_inside = True
        self.refused: dict[str, str] = {}
        self.slopes: Callable[[], list[np.ndarray]] | None = None
        self.rewritten: Callable[[], list[np.ndarray]] | None = None

    def add(self, who: str, values: list[np.ndarray]) -> None:
        self.accepted.append((who, values))

    @property
    def values(self) -> list[np.ndarray]:
        return self.accepted[0][1]

    def fault(self, actual: Sequence[Any], dtypes: Sequence[str] | None = None) -> str | None:
        """What is wrong with ``actual``: where it agrees with no oracle.

        Where the graph as it was written overflows or divides by zero, PyTensor's rewrites may have an
        answer: 1000 for ``log(exp(1000))``, 1 for ``0 / 0`` of one variable. Both are right.
        """
        fault = self._fault(actual, dtypes)
        if fault is not None and self.slopes is not None and self._are_slopes(actual):
            return None
        if fault is None or self.rewritten is None or self.is_finite():
            return fault
        try:
            with np.errstate(all="ignore"):
                there = self.rewritten()
        except Exception:
            return fault
        stable = Answer(self.gradient)
        stable.far, stable.defined = self.far, self.defined
        for who, values in self.accepted:
            if all(x.shape == y.shape for x, y in zip(values, there, strict=True)):
                both = zip(values, there, strict=True)
                stable.add(who, [np.where(np.isfinite(x), x, y).astype(x.dtype) for x, y in both])
        if not self.finite_inside:  # nan_to_num(x / x), say, has nothing left of it
            stable.add("rewritten", there)
        return stable._fault(actual, dtypes) if stable.accepted else fault

    def is_finite(self) -> bool:
        """Whether all is that was computed."""
        return self.finite_inside and all(is_finite(x) for x in self.values)

    def _are_slopes(self, actual: Sequence[Any]) -> bool:
        """Whether a gradient that no oracle has is what differences of the function say.

        PyTensor's own gradient of a write counts what a later write to the same place covers, that of an
        extreme counts each of those that are equal, and some of its gradients have the shape of what they
        were broadcast to. At a kink any slope between those of the two sides is one.
        """
        assert self.slopes is not None
        try:
            both = self.slopes()
        except Exception:  # PyTensor itself refuses the program with its loops
            return False
        return all(
            np.shape(x) == low.shape and _between(np.asarray(x, "float64"), low, high)
            for x, (low, high) in zip(actual, both, strict=True)
        )

    def _fault(self, actual: Sequence[Any], dtypes: Sequence[str] | None = None) -> str | None:
        said = None
        for _, values in self.accepted:
            far = self.far or [np.zeros(np.shape(x)) for x in values]
            faults = [
                difference(
                    x,
                    y,
                    f,
                    dtype=dtypes and dtypes[k],
                    gradient=self.gradient,
                    defined=self.defined,
                )
                for k, (x, y, f) in enumerate(zip(actual, values, far, strict=True))
            ]
            wrong = [f"output {k}: {f}" for k, f in enumerate(faults) if f]
            if not wrong:
                return None
            said = said or wrong[0]
        return said

    def disagreement(self) -> str | None:
        """Where the oracles differ from each other."""
        for who, values in self.accepted[1:]:
            alone = Answer(self.gradient)
            alone.far = self.far
            alone.accepted = self.accepted[:1]
            if fault := alone.fault(values):
                return f"{who}: {fault}"
        return None


def _between(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> bool:
    """Up to rounding; a function that overflows has no differences, and is said nothing of."""
    known = np.isfinite(low) & np.isfinite(high)
    size = np.where(known, np.maximum(np.abs(low), np.abs(high)), 0)
    near = 1e-5 * size.max(initial=1) + 1e-4 * size
    return bool((~known | ((x >= low - near) & (x <= high + near))).all())


def is_finite(x: np.ndarray) -> bool:
    return bool(np.isfinite(x).all())
