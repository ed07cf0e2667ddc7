"""Dispatch policies, one file each, and those of users by name."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from bpusim.errors import did_you_mean
from bpusim.runtime.calls import Policy
from bpusim.runtime.policies.edf import EarliestDeadline
from bpusim.runtime.policies.fifo import Fifo
from bpusim.runtime.policies.least_laxity import LeastLaxity
from bpusim.runtime.policies.priority import HIGH, Priority
from bpusim.runtime.policies.round_robin import RoundRobin
from bpusim.runtime.policies.weighted_fair import WeightedFair

__all__ = ["HIGH", "POLICIES", "Fifo", "Priority", "policy_maker"]

POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": Fifo,
    "round_robin": RoundRobin,
    "priority": Priority,
    "edf": EarliestDeadline,
    "least_laxity": LeastLaxity,
    "weighted_fair": WeightedFair,
}
_GROUP = "bpusim.policies"


def policy_maker(name: str, *folders: Path) -> Callable[[], Policy]:
    """What makes a policy for each core: one of ``POLICIES``, of the entry points ``bpusim.policies``, or a class by
    ``module:Class``, the module being looked for in ``folders`` and the present directory first.

    Raises :class:`ValueError` with what is wrong and what to do.
    """
    if name in POLICIES:
        return POLICIES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        from importlib.metadata import entry_points  # slow to import, and seldom asked for

        found = {e.name: e for e in entry_points(group=_GROUP)}
        if name not in found:
            hint = did_you_mean(name, [*POLICIES, *found])
            hint += "" if hint.endswith("?") else "."
            raise ValueError(f"no policy is named '{name}'; {hint} One of your own is module:Class")
        module, _, attribute = found[name].value.partition(":")
    with _looking_in(*folders, Path.cwd()):
        try:
            loaded = _module(module, [*folders, Path.cwd()])
        except ModuleNotFoundError as error:
            if error.name is not None and module.startswith(error.name):
                where = f"it is looked for in {folders[0]}, the present directory and Python's path"
                raise ValueError(f"no module is named '{error.name}'; {where}") from None
            raise ValueError(f"'{module}' cannot be imported: {error}; mend or install what it needs") from None
        except Exception as error:
            raise ValueError(f"'{module}' cannot be imported: {type(error).__name__}: {error}; mend it") from error
    made: Any = getattr(loaded, attribute, None)
    if made is None:
        classes = [n for n, v in vars(loaded).items() if isinstance(v, type) and hasattr(v, "pick")]
        raise ValueError(f"module '{module}' has no '{attribute}'; {did_you_mean(attribute, classes)}")
    if not callable(made) or not callable(getattr(made, "pick", None)):
        raise ValueError(f"'{name}' is no policy; give it a method pick(ready, core)")
    return cast("Callable[[], Policy]", made)


def _module(name: str, folders: Sequence[Path]) -> ModuleType:
    """A module by its file in one of ``folders``, or as Python finds it. By its file it is another one than that of the
    same name in another folder."""
    for folder in folders:
        file = (folder / name.replace(".", "/")).with_suffix(".py").absolute()
        if file.is_file():
            unique = f"_bpusim_policies_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
            spec = spec_from_file_location(unique, file)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[unique] = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return import_module(name)


@contextmanager
def _looking_in(*folders: Path) -> Iterator[None]:
    """Modules are found there first, for now."""
    before = list(sys.path)
    sys.path[:0] = [str(f) for f in folders]
    try:
        yield
    finally:
        sys.path[:] = before
