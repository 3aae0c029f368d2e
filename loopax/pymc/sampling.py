"""Samplers of PyMC models on functions that loopax compiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Unpack, get_args

import pymc as pm
from pymc.step_methods import STEP_METHODS
from pymc.vartypes import discrete_types
from pytensor.graph.basic import Variable

from loopax.base.gc_pause import gc_paused
from loopax.base.upstream.nutpie import compilation_patches
from loopax.base.upstream.patching import patched
from loopax.base.upstream.pymc import competence, jax_sampler_patches
from loopax.calling import backend_named
from loopax.native_functions import Loops
from loopax.options import BackendName
from loopax.pymc.arguments import SampleOptions, Sampler, asks_for_pymc, one_name
from loopax.pymc.blackjax_loop import inference_loop
from loopax.pymc.c_functions import expand_function, logp_function
from loopax.pymc.checkpoints.resuming import resumable
from loopax.pymc.model_functions import built, checked_by_value, model_given_or_in_context
from loopax.pymc.start import start_checked
from loopax.pytensor_modes import MODES

_SAMPLERS = get_args(Sampler)
_OF_JAX = ("numpyro", "blackjax")


def sample(
    model: pm.Model | int | None = None,
    sampler: Sampler | None = None,
    *,
    backend: BackendName | None = None,
    draws: int = 1000,
    tune: int | None = 1000,
    chains: int | None = 4,
    seed: Any = None,
    progress: Any = True,
    log_likelihood: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Unpack[SampleOptions],
) -> Any:
    """Draw from the posterior of a PyMC model by ``pm.sample``, with its functions compiled by loopax.

    Every argument of ``pm.sample`` keeps its name and meaning, and the number of draws may come first:
    replace ``pm.`` by ``loopax.pymc.``.

    Parameters
    ----------
    model
        The model; the default is the model of the enclosing ``with`` block.
    sampler
        ``"nutpie"``, ``"numpyro"`` or ``"blackjax"``, which are installed separately; or ``"pymc"``,
        the only sampler with steps other than NUTS, for example for discrete variables. None is nutpie
        if it is installed and supports the call, otherwise PyMC's own sampler. Another name for
        ``nuts_sampler``.
    backend
        ``"numba"``, native code: the default of nutpie and of PyMC's own sampler; NumPyro and BlackJAX
        use it in the form of a JAX operation. ``"jax"``: the default of NumPyro and BlackJAX, and
        possible for PyMC's own sampler.
    draws, tune, chains
        The numbers of draws, of tuning steps and of chains, as in ``pm.sample``.
    seed
        Another name for ``random_seed``.
    progress
        Another name for ``progressbar``. BlackJAX has none.
    log_likelihood
        Whether to add the log-likelihood of each observation.
    checkpoint
        A folder in which the run keeps its draws and the sampler's state as it goes. Where a process
        ends, the same call resumes the run, with the draws of a run that was not stopped.
    options
        More arguments of ``pm.sample``. Chains of NumPyro and BlackJAX run in parallel in one program,
        unless ``nuts={"chain_method": ...}`` says otherwise.

    Returns
    -------
    The result of ``pm.sample``: a tree of data sets, with coordinates, deterministics and the
    statistics of the sampler.

    Raises
    ------
    ImportError
        The sampler is not installed.
    ValueError
        The sampler is unknown, does not take the backend, or lacks a step that the model needs.
    TypeError
        There is no model, or an argument is passed under both of its names.
    loopax.pymc.CheckpointError
        The folder of ``checkpoint`` belongs to another run, is in use or is damaged; or the sampler cannot
        resume in this call.
    pymc.exceptions.SamplingError
        The log-density is not finite at the start of sampling; the message lists the terms of the
        model.

    Examples
    --------
    >>> import pymc as pm, loopax.pymc
    >>> with pm.Model():
    ...     x = pm.Normal("x", 3.0, 0.1)
    ...     trace = loopax.pymc.sample(
    ...         sampler="pymc", draws=50, tune=50, chains=1, seed=1, progress=False, quiet=True,
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(abs(trace.posterior["x"].mean() - 3.0) < 0.1)
    True
    """
    if isinstance(model, int) and not isinstance(model, bool):  # pm.sample(500)
        draws, model = model, None
    model = model_given_or_in_context(model, "sample")
    others: dict[str, Any] = {**options}
    sampler = one_name("sampler", sampler, None, "nuts_sampler", others)
    seed = one_name("seed", seed, None, "random_seed", others)
    progress = one_name("progress", progress, True, "progressbar", others)
    other_steps = _steps_beside_nuts(model)
    if sampler is None:
        alone = not other_steps and not asks_for_pymc(others)
        sampler = "nutpie" if alone and find_spec("nutpie") else "pymc"
    _refuse_sampler(sampler)
    if sampler != "pymc" and other_steps:
        raise ValueError(
            f"sampler={sampler!r} draws only with NUTS, but PyMC has another step for "
            f"{', '.join(other_steps)}. PyMC's own sampler has both: loopax.pymc.sample(model, "
            "sampler='pymc'). You can also sum discrete variables out: pymc_extras.marginalize."
        )
    chosen = backend or ("jax" if sampler in _OF_JAX else "numba")
    mode = _mode(chosen)
    if sampler == "nutpie" and chosen != "numba":
        raise ValueError(
            "nutpie calls native code: sampler='nutpie' works only with backend='numba', got "
            f"{chosen!r}. In JAX, use sampler='numpyro' or 'blackjax'."
        )
    others |= {"draws": draws, "tune": tune, "chains": chains, "random_seed": seed}
    others |= {"progressbar": progress, "nuts_sampler": sampler}
    if checkpoint is None:
        trace = _drawn(model, chosen, others)
    else:
        with resumable(checkpoint, model, chosen, others) as resumed:
            trace = _drawn(model, chosen, resumed)
    if log_likelihood:
        kwargs = {"compile_kwargs": {"mode": mode}, "progressbar": False}
        trace = pm.compute_log_likelihood(trace, model=model, **kwargs)
    return trace


def _drawn(model: pm.Model, backend: str, options: dict[str, Any]) -> Any:
    """The result of ``pm.sample``, with functions of ``backend``."""
    sampler, mode = options["nuts_sampler"], _mode(backend)
    if sampler == "pymc":
        compile_kwargs = {"mode": mode, **(options.get("compile_kwargs") or {})}
        return pm.sample(model=model, **{**options, "compile_kwargs": compile_kwargs})
    if sampler in _OF_JAX and options.get("nuts_sampler_kwargs") is None:
        options = {**options, "nuts": {"chain_method": "vectorized", **(options.get("nuts") or {})}}
    loops: Loops | None = "native" if backend == "numba" else None
    with installed(loops=loops), start_checked(model, options.get("initvals")):
        return pm.sample(model=model, **options)


def nutpie_model(model: pm.Model | None = None, **options: Any) -> Any:
    """Compile a model for ``nutpie.sample``: log-density, gradient and stored variables as C functions.

    They are compiled as with ``backend="numba"``. ``.with_data(x=...)`` of the result replaces the data
    without another compilation. A parameter outside its domain rejects the step; sampling goes on.

    Parameters
    ----------
    model
        The model; the default is the model of the enclosing ``with`` block.
    options
        More arguments of ``nutpie.compile_pymc_model``.

    Raises
    ------
    ImportError
        nutpie is not installed.
    TypeError
        There is no model.

    Examples
    --------
    Compile once, and sample with other data::

        compiled = loopax.pymc.nutpie_model(model)
        trace = nutpie.sample(compiled.with_data(x=x), draws=1000)
    """
    model = model_given_or_in_context(model, "nutpie_model")
    _refuse_sampler("nutpie")
    nutpie = import_module("nutpie")
    with installed():
        return nutpie.compile_pymc_model(model, backend="numba", **options)


@contextmanager
def installed(loops: Literal["auto", "native", "xla"] | None = None) -> Iterator[None]:
    """Use loopax's conversions in PyMC's JAX samplers and in nutpie, in a ``with`` block.

    In the block ``pymc.sampling.jax`` and ``nutpie.compile_pymc_model`` use them in place of
    PyTensor's: in your own calls of ``pm.sample(nuts_sampler=...)``, ``sample_numpyro_nuts`` and the
    like. It patches functions of these modules, for all threads, and restores them at the end.

    Parameters
    ----------
    loops
        As for `loopax.jaxify`, in JAX.

    Examples
    --------
    >>> import pymc as pm, loopax.pymc
    >>> with pm.Model() as model:
    ...     x = pm.Normal("x")
    >>> with loopax.pymc.installed():
    ...     f = pm.sampling.jax.get_jaxified_logp(model)
    >>> f([1.0]) == model.compile_logp()({"x": 1.0})
    Array(True, dtype=bool)
    """
    backend_named("jax").options(True, "callback", loops=loops)  # refuses unknown values
    patches = jax_sampler_patches(
        logp=partial(_jaxified_logp, loops),
        graph=partial(_jaxified_graph, loops),
        blackjax_loop=inference_loop,
    )
    if find_spec("nutpie"):
        patches += compilation_patches(
            make_functions=lambda original: partial(_native_functions, original),
            compile_model=gc_paused(),
            c_logp=logp_function,
            c_expand=expand_function,
        )
    with patched(patches):
        yield


def _jaxified_logp(loops: str | None, model: pm.Model, negative_logp: bool = True) -> Any:
    """Replacement of ``pymc.sampling.jax.get_jaxified_logp``, whose False means the negative."""
    value = model.logp() if negative_logp else -model.logp()
    f = _jaxified_graph(loops, model.value_vars, checked_by_value(model, [value]))
    return lambda x: f(*x)[0]


def _jaxified_graph(
    loops: str | None,
    inputs: Sequence[Variable] | None = None,
    outputs: Sequence[Variable] | None = None,
) -> Any:
    """Replacement of ``pymc.sampling.jax.get_jaxified_graph``."""
    return built(list(inputs or ()), list(outputs or ()), "model", "jax", {"loops": loops})


def _native_functions(
    theirs: Callable[..., Any], model: pm.Model, *, mode: str, **options: object
) -> Any:
    """Replacement of ``nutpie.compile_pymc._make_functions``, with our mode in place of Numba's."""
    return theirs(model, mode=_mode("numba") if mode == "NUMBA" else mode, **options)


def _mode(backend: str) -> str:
    modes = {b: mode for mode, b in MODES.items()}
    if backend not in modes:
        raise ValueError(f"backend must be one of {tuple(modes)}, got {backend!r}")
    return modes[backend]


def _steps_beside_nuts(model: pm.Model) -> list[str]:
    """Variables to which PyMC assigns another step than NUTS, each with the name of the step.

    It chooses like ``pm.sample``, by the steps' competence, but without a gradient for each variable.
    """
    steps = []
    for value in model.value_vars:
        variable, differentiable = model.values_to_rvs[value], value.dtype not in discrete_types
        step = max(STEP_METHODS, key=lambda step: competence(step, variable, differentiable))
        if not issubclass(step, pm.NUTS):
            steps.append(f"{variable.name!r} ({step.__name__})")
    return steps


def _refuse_sampler(sampler: str) -> None:
    if sampler not in _SAMPLERS:
        by_name = (
            ""
            if isinstance(sampler, str)
            else f". All after it is given by name: draws={sampler!r}"
        )
        raise ValueError(f"sampler must be one of {_SAMPLERS}, got {sampler!r}{by_name}")
    if sampler != "pymc" and not find_spec(sampler):
        raise ImportError(
            f"sampler={sampler!r} needs the package {sampler}, which is not installed: pip install "
            f"{sampler}. PyMC's own sampler needs no other package: sampler='pymc'."
        )
