"""Arguments of ``pm.sample`` that have a second name here, or that only one sampler takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Sampler = Literal["pymc", "nutpie", "numpyro", "blackjax"]


class SampleOptions(TypedDict, total=False):
    """Arguments of ``pm.sample``, which documents them."""

    random_seed: Any
    progressbar: Any
    nuts_sampler: Sampler | None
    cores: int | None
    progressbar_theme: Any
    quiet: bool
    step: Any
    var_names: Sequence[str] | None
    initvals: Any
    init: str
    jitter_max_retries: int
    n_init: int
    trace: Any
    discard_tuned_samples: bool
    compute_convergence_checks: bool
    keep_warning_stat: bool
    return_inferencedata: bool
    idata_kwargs: Mapping[str, Any] | None
    nuts_sampler_kwargs: Mapping[str, Any] | None
    callback: Any
    mp_ctx: Any
    blas_cores: int | Literal["auto"] | None
    compile_kwargs: Mapping[str, Any] | None
    # Options of NUTS, and of each other step by its name.
    target_accept: float
    max_treedepth: int
    early_max_treedepth: int
    step_scale: float
    nuts: Mapping[str, Any]
    hmc: Mapping[str, Any]
    metropolis: Mapping[str, Any]
    binary_metropolis: Mapping[str, Any]
    binary_gibbs_metropolis: Mapping[str, Any]
    categorical_gibbs_metropolis: Mapping[str, Any]
    slice: Mapping[str, Any]


def one_name(
    ours: str, value: object, default: object, theirs: str, options: dict[str, Any]
) -> Any:
    """The value of an argument with two names; removes ``theirs`` from ``options``."""
    if theirs not in options:
        return value
    if value is not default:
        raise TypeError(
            f"{ours!r} and {theirs!r} are two names for one argument: pass sample(model, "
            f"{theirs}={options[theirs]!r}) alone."
        )
    return options.pop(theirs)


def asks_for_pymc(options: dict[str, Any]) -> bool:
    """Whether an argument is for PyMC's own sampler only, by the test of ``pm.sample``."""
    starts = options.get("initvals")
    return (
        any(options.get(name) is not None for name in ("step", "trace", "callback"))
        or options.get("init", "auto") != "auto"
        or not options.get("return_inferencedata", True)
        or not (starts is None or isinstance(starts, dict))
    )
