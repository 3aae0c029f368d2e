"""Each module of an extension is reached from its record: rules register where they are imported."""

import pytest

from loopax.base.extensions import installed_extensions
from tests.test_layering import PACKAGE, imports_within, module_of

SOURCES = {
    module_of(path): path.read_text(encoding="utf-8")
    for path in PACKAGE
    if module_of(path).startswith("loopax.extensions.")
}
PACKAGES = {module_of(path) for path in PACKAGE if path.name == "__init__.py"}


@pytest.mark.parametrize("name", installed_extensions())
def test_every_module_is_reached(name):
    record = installed_extensions()[name]
    imports = imports_within(SOURCES, PACKAGES & SOURCES.keys())
    ahead = [target.partition(":")[0] for target in record.parts.values()]
    ahead += [module for modules in record.rules.values() for module in modules]
    reached = set()
    while ahead:
        module = ahead.pop()
        if module not in reached:
            reached.add(module)
            parents = [module.rsplit(".", k)[0] for k in range(1, module.count(".") - 1)]
            ahead += [*imports[module], *(p for p in parents if p in SOURCES)]
    own = {module for module in SOURCES if f"{module}.".startswith(f"loopax.extensions.{name}.")}
    assert own - reached == set()
