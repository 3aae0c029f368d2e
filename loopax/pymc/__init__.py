"""PyMC models: log-densities in JAX and in native code, and samplers that call them. The extra
``pymc``.

logp(model)            the log-density as a function of a point; `loopax.jaxify` of a model is the same
sample(model)          pm.sample, with its functions compiled by loopax
nutpie_model(model)    a model for nutpie.sample, as two C functions
diagnose(model)        the terms that are not finite at a point, and why
installed()            a context for your own calls of PyMC's samplers
"""

_NEEDS = "loopax.pymc needs PyMC 6, and that Python 3.12 or later: pip install 'loopax[pymc]'."

try:
    import pymc
except ImportError as error:
    raise ImportError(_NEEDS) from error
if int(pymc.__version__.partition(".")[0]) < 6:
    raise ImportError(f"{_NEEDS} PyMC {pymc.__version__} is installed.")

from loopax.pymc.checkpoints.folder import CheckpointError  # noqa: E402
from loopax.pymc.diagnosing import ModelDiagnosis, diagnose  # noqa: E402
from loopax.pymc.log_density import LogDensity, logp  # noqa: E402
from loopax.pymc.sampling import installed, nutpie_model, sample  # noqa: E402

__all__ = [
    "CheckpointError",
    "LogDensity",
    "ModelDiagnosis",
    "diagnose",
    "installed",
    "logp",
    "nutpie_model",
    "sample",
]
