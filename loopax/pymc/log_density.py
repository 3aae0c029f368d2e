"""`logp`: the log-density of a model as a function of a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import rewrite_pregrad
from pymc.util import get_default_varnames
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.type import TensorType

from loopax import frontend
from loopax.base.errors import LoopTypeError, MissingInputError
from loopax.builders import PytreeBuilder
from loopax.calling import DEFAULT
from loopax.options import BackendName, BuildOptions
from loopax.pymc.model_functions import builder, built, checked_by_value, model_given_or_in_context
from loopax.transforms import vmap

_OPTIONS = tuple(BuildOptions.__annotations__)


class LogDensity:
    """The log-density of a model on its unconstrained space, made by `logp`.

    Call it with a point, a dict by the names of the model's value variables, or with keywords. JAX can
    trace it like a function from `loopax.jaxify`. Data are read at every call.

    Attributes
    ----------
    model
        The model.
    backend
        ``"jax"`` or ``"numba"``.
    names
        The names of the value variables, in the order in which `flatten` joins them.
    """

    def __init__(
        self, model: pm.Model, backend: str, jacobian: bool, options: Mapping[str, Any]
    ) -> None:
        self.model, self.backend = model, backend
        self._variables = list(model.value_vars)
        self.names = [v.name for v in self._variables]
        self._options = dict(options)
        self._graph = checked_by_value(model, [model.logp(jacobian=jacobian)])[0]
        self._value = self._jaxified(self._graph, f"logp of {model.name or 'the model'}")

    def __call__(self, *point: object, **values: object) -> Any:
        return self._value(**self._named(point, values))

    def value_and_gradient(self, *point: object, **values: object) -> tuple[Any, dict[str, Any]]:
        """The log-density and its gradient, a dict by the names of the float variables."""
        value, slopes = self._both(**self._named(point, values))
        return value, slopes

    def gradient(self, *point: object, **values: object) -> dict[str, Any]:
        """The gradient, a dict by the names of the float variables."""
        return self.value_and_gradient(*point, **values)[1]

    def initial_point(self, seed: int | None = None) -> dict[str, np.ndarray]:
        """The point at which PyMC starts."""
        return self.model.initial_point(seed)

    @cached_property
    def of_point(self) -> Any:
        """The log-density as a function of one dict, for loopax's transformations.

        It has the type that `loopax.jaxify` returns. (JAX's transformations take the log-density
        itself.)
        """
        inputs = {v.name: v for v in self._variables}
        name = self._value.__name__
        declared = frontend.PytreeInputs(inputs, self._graph, None, None, name)
        return PytreeBuilder.function(builder(self.backend, self._options), declared)

    @cached_property
    def ravel(self) -> Any:
        """The log-density as a function of one vector, the result of `flatten`.

        It has the type that `loopax.jaxify` returns: ``loopax.grad`` and JAX's transformations take it.
        """
        vector = TensorType(pytensor.config.floatX, (sum(self._sizes),))("point")
        value = clone_replace([self._graph], self._parts(vector), rebuild_strict=False)[0]
        return self._built([vector], value, self._value.__name__)

    def flatten(self, point: Mapping[str, Any]) -> np.ndarray:
        """Concatenate the values of a point to one vector."""
        values = self._values(point)
        return np.concatenate([np.ravel(x) for x in values]).astype(pytensor.config.floatX)

    def unflatten(self, vector: Any) -> dict[str, Any]:
        """Invert `flatten`. Values of variables that are not floats are cast."""
        size = sum(self._sizes)
        if np.shape(vector) != (size,):
            raise LoopTypeError(
                f"A point of {self!r} must be a vector of {size} values, one variable after the other, "
                f"as f.flatten(point) returns it; got one of shape {np.shape(vector)}."
            )
        return {v.name: x for v, x in self._parts(vector).items()}

    def constrain(self, draws: Mapping[str, Any]) -> dict[str, Any]:
        """Compute the variables of the model, in their own spaces, and its deterministics at a point.

        Parameters
        ----------
        draws
            A point; or several, along any number of leading axes common to all values, such as chains
            and draws.

        Returns
        -------
        A dict by name, with the same leading axes.
        """
        values = self._values(draws)
        extra = {np.ndim(x) - v.type.ndim for x, v in zip(values, self._variables, strict=True)}
        if len(extra) > 1 or min(extra, default=0) < 0:
            shapes = {n: np.shape(x) for n, x in zip(self.names, values, strict=True)}
            raise LoopTypeError(
                "All draws must have the same leading axes before the axes of each variable; got "
                f"{shapes}, while a point has {dict(zip(self.names, self._shapes, strict=True))}."
            )
        n = extra.pop() if extra else 0
        if n == 0:
            return self._constrained(*values)
        lead = np.shape(values[0])[:n]
        rows = [x.reshape((-1, *np.shape(x)[n:])) for x in map(_as_array, values)]
        outs = self._batched(*rows)
        return {name: x.reshape((*lead, *np.shape(x)[1:])) for name, x in outs.items()}

    def __getstate__(self) -> dict[str, Any]:
        cached = {k for k, v in vars(type(self)).items() if isinstance(v, cached_property)}
        return {k: v for k, v in self.__dict__.items() if k not in cached}

    def __repr__(self) -> str:
        point = ", ".join(
            f"{v.name}: {v.type.dtype}{list(s)}"
            for v, s in zip(self._variables, self._shapes, strict=True)
        )
        return f"{type(self).__name__}({point}, backend={self.backend!r})"

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        start = self.initial_point(0)
        return [np.shape(start[n]) for n in self.names]

    @cached_property
    def _both(self) -> Any:
        floats = [v for v in self._variables if v.type.dtype.startswith("float")]
        graph = clone_replace([self._graph])[0]  # for a rewrite in place
        value = rewrite_pregrad(graph)
        slopes: Any = pytensor.grad(value, floats, disconnected_inputs="ignore") if floats else []
        by_name = {v.name: g for v, g in zip(floats, slopes, strict=True)}
        return self._jaxified((value, by_name), f"gradient of {self._value.__name__}")

    @cached_property
    def _constrained(self) -> Any:
        variables = get_default_varnames(
            self.model.unobserved_value_vars, include_transformed=False
        )
        return self._jaxified({v.name: v for v in variables}, "constrain")

    @cached_property
    def _batched(self) -> Any:
        return vmap(self._constrained)

    def _named(self, point: tuple[Any, ...], values: Mapping[str, Any]) -> dict[str, Any]:
        if not point:
            return dict(values)
        if len(point) == 1 and isinstance(point[0], Mapping) and not values:
            return dict(point[0])
        named = ", ".join(f"{n!r}: ..." for n in self.names)
        raise TypeError(
            f"The log-density takes a point, by name: f({{{named}}}), such as f(f.initial_point()). To "
            "pass one vector, write f.ravel(f.flatten(point))."
        )

    def _values(self, point: Mapping[str, Any]) -> list[Any]:
        """Order the values of a point, or of draws, by `names`."""
        items = self._named((point,), {})
        if missing := [n for n in self.names if n not in items]:
            raise MissingInputError(
                f"A point needs a value for each of {', '.join(self.names)}, but {', '.join(missing)} "
                f"is not among {', '.join(items)}. The values are unconstrained: f.initial_point() "
                "returns a complete point."
            )
        return [items[n] for n in self.names]

    @property
    def _sizes(self) -> list[int]:
        return [int(np.prod(s)) for s in self._shapes]

    def _parts(self, vector: Any) -> dict[Any, Any]:
        """The value of each variable in a vector, or in a symbol of one."""
        ends = np.cumsum(self._sizes).tolist()
        of_variables = zip(self._variables, self._sizes, ends, self._shapes, strict=True)
        return {v: vector[b - n : b].reshape(s).astype(v.type.dtype) for v, n, b, s in of_variables}

    def _jaxified(self, outputs: object, name: str) -> Any:
        return self._built(self._variables, outputs, name)

    def _built(self, inputs: Sequence[Variable], outputs: object, name: str) -> Any:
        return built(inputs, outputs, name, self.backend, self._options)


def logp(
    model: pm.Model | None = None,
    *,
    backend: BackendName = DEFAULT,
    jacobian: bool = True,
    **options: Unpack[BuildOptions],
) -> LogDensity:
    """Convert a PyMC model to its log-density, as a JAX function or as native code.

    A parameter outside its domain gives minus infinity, as in PyMC, unless the model has
    ``check_bounds=False``.

    Parameters
    ----------
    model
        The model; the default is the model of the enclosing ``with`` block.
    backend
        As for `loopax.jaxify`.
    jacobian
        Whether to add the log-Jacobians of the variables' transformations.
    options
        ``jit``, ``on_missing``, ``checks``, ``loops``, ``parallel`` and ``optimize``, as for
        `loopax.jaxify`.

    Raises
    ------
    TypeError
        There is no model, or an option is unknown.

    Examples
    --------
    >>> import jax, pymc as pm, loopax.pymc
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x", 0.0, 2.0)
    ...     size = pm.HalfNormal("size", 1.0)
    >>> f = loopax.pymc.logp(model)
    >>> point = {"x": 1.0, "size_log__": 0.5}
    >>> abs(f(point) - model.compile_logp()(point)) < 1e-12
    Array(True, dtype=bool)
    >>> sorted(f.gradient(point)), sorted(f.constrain(point)), f.ravel(f.flatten(point)) == f(point)
    (['size_log__', 'x'], ['size', 'x'], Array(True, dtype=bool))

    `loopax.grad` and the other transformations take it too, as a function of a point:

    >>> native = loopax.pymc.logp(model, backend="numba")
    >>> loopax.grad(native)(point)["x"]
    array(-0.25)
    """
    model = model_given_or_in_context(model, "logp")
    if unknown := [o for o in options if o not in _OPTIONS]:
        names = ("backend", "jacobian", *_OPTIONS)
        raise TypeError(f"logp has no option {unknown[0]!r}: it has {', '.join(names)}.")
    return LogDensity(model, backend, jacobian, options)


def _as_array(x: Any) -> Any:
    return x if hasattr(x, "reshape") else np.asarray(x)
