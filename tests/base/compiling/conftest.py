"""The LLVM text that Numba writes."""

import pytest
from numba.core.codegen import CPUCodeLibrary


@pytest.fixture
def texts(monkeypatch):
    """The text of each module that Numba has passed to LLVM so far."""
    modules = []
    real = CPUCodeLibrary.add_ir_module

    def noted(self, module):
        modules.append(str(module))
        real(self, module)

    monkeypatch.setattr(CPUCodeLibrary, "add_ir_module", noted)
    return modules
