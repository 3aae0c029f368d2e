"""What came of a route, and the routes by their names: `routes` has what they do."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopax import DynamicShapeError
from tests.random_programs.answers import Answer, NotAProgram
from tests.random_programs.oracles import Case

# What has a length that only its values tell.
SHAPED_BY_VALUES = (
    *("mask", "nonzero", "pytensor.scan", "loopax.scan", "write", "choose"),
    *("mask along an axis", "write along an axis", "rows of a loop that stops"),
)


@dataclass(frozen=True)
class Verdict:
    """What came of one route.

    ``status``: right, wrong, refused, shape (a length that JAX cannot know), nan (0 times infinity, in
    JAX's derivative), nothing (to compare), or differs (PyTensor from itself).
    """

    status: str
    what: str = ""

    @property
    def signature(self) -> str:
        """Equal for what is probably one fault."""
        return f"{self.status}: {self.what.splitlines()[0][:70] if self.what else ''}"


ROUTES: dict[str, Callable[[Case], Verdict]] = {}


def route(name: str) -> Callable[[Any], Any]:
    """Registers a function that gives (what was found, the answer, the dtypes)."""

    def register(run: Callable[[Case], tuple[list[Any], Answer, list[str] | None]]) -> Any:
        def judged(case: Case) -> Verdict:
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    actual, answer, dtypes = run(case)
            except NotAProgram as error:
                return Verdict("nothing", str(error))
            except Exception as error:
                shaped = any(case.program.features.get(k) for k in SHAPED_BY_VALUES)
                by_design = isinstance(error, DynamicShapeError) and shaped and "jax" in name
                text = f"{type(error).__name__}: {error}"
                if name.startswith("PyTensor's") or "reference" in case.outputs.refused:
                    return Verdict("nothing", text)  # PyTensor refuses it as well
                return Verdict("shape" if by_design else "refused", text)
            fault = answer.fault(actual, dtypes)
            if fault is None:
                return Verdict("right")
            if name.startswith("jax.grad") and _is_nan_here(case, judged, actual, answer):
                return Verdict("nan", fault)
            if "jvp" in name and _is_nan_alone(actual, answer) and case.nearby.is_singular:
                return Verdict("nan", fault)
            return Verdict("differs" if name.startswith("PyTensor's") else "wrong", fault)

        ROUTES[name] = judged
        return judged

    return register


def _is_nan_here(case: Case, run: Any, actual: list[Any], answer: Answer) -> bool:
    """Whether nan is all that is wrong with JAX's gradient, and it is right a little away from here.

    JAX multiplies what a branch that was not taken has for a slope, infinity say, by the zeros that come
    back to it, where PyTensor leaves out the term. README.md says so.
    """
    if case.is_nearby:
        return False
    return _is_nan_alone(actual, answer) and run(case.nearby).status == "right"


def _is_nan_alone(actual: list[Any], answer: Answer) -> bool:
    """Whether nothing but nan is wrong.

    A tangent of 0 that has been through a loop times a derivative that is infinite, of arctan2 at (0, 0)
    say, is nan in forward mode; where PyTensor knows that nothing is connected, there is no such product.
    """
    finite = [np.where(np.isnan(x), y, x) for x, y in zip(actual, answer.values, strict=True)]
    return answer.fault(finite) is None
