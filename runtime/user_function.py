"""A jitted function and its arguments, of a file or module that a user names.

model.py:step            step(devices) returns (jitted function, arguments)
model.py:step            step is jitted, and --args says what it is called with
training.model:step      the same of a module, found as `python -m` finds it

def step(devices):                       # in model.py
    mesh = jax.sharding.Mesh(devices, ("x",))
    ...
    return jax.jit(f), (abstract_x, abstract_y)
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from hlo_passes.errors import HloError, UsageError, nearest
from hlo_passes.files import require_file
from hlo_passes.runtime.own_frames import leave_out_frames_of_the_command
from hlo_passes.runtime.program_arguments import read_arguments

#: The three forms, for help texts.
FORMS: Final = (
    "FUNCTION(devices) returns (jitted function, arguments); or FUNCTION is jitted, "
    "with --args=NAME of a function or a tuple beside it; or with its shapes: "
    "--args='f32[8,128],s32[]'"
)
#: The parameter that gets the devices wherever it is.
_DEVICES: Final = "devices"


class UserFunctionError(UsageError):
    """The file or function given to `lower` does not do what it must."""

    default_code = "U025"


class _Guarded:
    """A jitted or traced function; errors in tracing and lowering are the user's."""

    def __init__(self, jitted: Any, function: str) -> None:
        self._jitted = jitted
        self._function = function
        self.__name__ = getattr(jitted, "__name__", "function")

    def lower(self, *arguments: Any, **options: Any) -> Any:
        """Lower the jitted function; UserFunctionError U025 if that raises."""
        return self._guarded(self._jitted.lower, *arguments, **options)

    def trace(self, *arguments: Any) -> _Guarded:
        """Trace the jitted function; UserFunctionError U025 if that raises."""
        if not hasattr(self._jitted, "trace"):
            raise UserFunctionError(
                f"{self._function} is a function that cannot be traced for a "
                "target, as jax.pmap makes it",
                hint="use jax.jit with jax.shard_map; without --target it can be "
                "lowered as it is",
            )
        traced = self._guarded(self._jitted.trace, *arguments)
        return _Guarded(traced, self._function)

    def _guarded(
        self, step: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        try:
            return step(*arguments, **options)
        except Exception as problem:
            # The user's code runs here: it may raise anything.
            raise UserFunctionError(
                f"{self._function} cannot be traced: {_first_line(problem)}",
                hint="the arguments must be those that the function takes",
            ) from problem


def _first_line(problem: BaseException) -> str:
    first = (str(problem).splitlines() or [""])[0]
    return f"{type(problem).__name__}: {first}"


def read_program(
    function: str, devices: Sequence[Any], arguments: str = ""
) -> tuple[Any, tuple[Any, ...]]:
    """The jitted function and the arguments that a user names.

    Args:
        function: FILE.py:FUNCTION or MODULE:FUNCTION.
        devices: for a FUNCTION that wants them.
        arguments: of a FUNCTION that is jitted itself: as `read_arguments` reads them,
            or [FILE.py:|MODULE:]NAME of what makes them, a function with or without the
            devices as its parameter.

    Raises:
        UserFunctionError: U025, something is missing or does not do its part.
        UsageError: U001, no such file.
    """
    leave_out_frames_of_the_command()
    module, name = _module_and_name(function)
    made = _found(module, name, function)
    row = np.array(devices)
    if hasattr(made, "lower"):
        # A jitted function: somebody must say its arguments.
        if not arguments:
            raise UserFunctionError(
                f"{function} is a jitted function, and nothing says its arguments",
                hint=f"give --args; {FORMS}",
            )
        jitted, values = made, _arguments(arguments, module, row)
    elif arguments:
        raise UserFunctionError(
            f"{function} is not a jitted function, so --args is not for it",
            hint=f"wrap it in jax.jit, or leave out --args; {FORMS}",
        )
    else:
        if not callable(made):
            raise UserFunctionError(f"{function} is not a function", hint=FORMS)
        result = _called(function, made, row if _may_take_devices(made) else None)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise UserFunctionError(
                f"{function} must return (jitted function, arguments)", hint=FORMS
            )
        jitted, values = result
    # Check what was made.
    if not isinstance(values, tuple | list):
        raise UserFunctionError(
            f"{arguments or function} returns {type(values).__name__} as the arguments",
            hint="return a tuple of them: return jitted, (x,)"
            if not arguments
            else "return a tuple of them: return (x,)",
        )
    if hasattr(jitted, "lower"):
        jitted = _Guarded(jitted, function)
    return jitted, tuple(values)


def _arguments(text: str, module: ModuleType, devices: np.ndarray) -> Any:
    """What --args says: shapes, or the name of what makes the arguments."""
    where, colon, name = text.rpartition(":")
    if not name.isidentifier() or (colon and not _is_place(where)):
        return read_arguments(text)
    if colon:
        module, name = _module_and_name(text)
    made = _found(module, name, text)
    if not callable(made):
        return made
    return _called(text, made, devices if _wants_devices(made) else None)


def _called(function: str, made: Callable[..., Any], devices: np.ndarray | None) -> Any:
    """What a user's function returns, called with the devices or with nothing."""
    arguments = () if devices is None else (devices,)
    try:
        return made(*arguments)
    except HloError:
        raise
    except (Exception, SystemExit) as problem:
        raise UserFunctionError(
            f"{function} raises {type(problem).__name__}: {problem}",
            hint=f"it was called with {'the devices' if arguments else 'nothing'}; "
            f"{FORMS}",
        ) from problem


def _may_take_devices(function: Any) -> bool:
    return _takes(function, 1) or not _takes(function, 0)


def _wants_devices(function: Any) -> bool:
    """Whether it cannot do without, or has a parameter of that name."""
    if not _takes(function, 0):
        return True
    return _DEVICES in inspect.signature(function).parameters


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # it is built in and says nothing
        return count == 1
    return True


# -- files and modules ------------------------------------------------------------


def _is_place(text: str) -> bool:
    """Whether a text names a Python file or a module."""
    return text.endswith(".py") or all(p.isidentifier() for p in text.split("."))


def _module_and_name(function: str) -> tuple[ModuleType, str]:
    """The module that a user names, and the name in it."""
    place, colon, name = function.rpartition(":")
    if not colon or not name.isidentifier():
        raise UserFunctionError(
            f"{function} is not of the form FILE.py:FUNCTION or MODULE:FUNCTION",
            hint="model.py:step",
        )
    is_file = not _is_place(place) or place.endswith(".py") or os.path.isfile(place)
    folder = pathlib.Path(place).resolve().parent if is_file else pathlib.Path.cwd()
    if is_file:
        require_file(place)
    # As `python FILE` and `python -m MODULE` do, look there first.
    sys.path.insert(0, str(folder))
    try:
        return (_of_file if is_file else _of_name)(place), name
    except HloError:
        raise
    except (Exception, SystemExit) as problem:
        raise UserFunctionError(
            f"{place} raises {type(problem).__name__}: {problem}"
        ) from problem
    finally:
        sys.path.pop(0)
        # What the program imports later, when it is called or traced, is there, too.
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def _of_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UserFunctionError(
            f"{path} is not a Python file", hint="its name ends in .py"
        )
    module = importlib.util.module_from_spec(spec)
    # Data classes look for their module by its name.
    before = sys.modules.get(spec.name)
    if before is None or getattr(before, "__file__", None) == spec.origin:
        sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _of_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{name}.".startswith(f"{problem.name}."):
            raise
        raise UserFunctionError(
            f"there is no module {name}",
            hint="it is looked for in the current directory and on PYTHONPATH; a file "
            "is named with its ending: model.py:step",
        ) from problem


def _found(module: ModuleType, name: str, function: str) -> Any:
    made = getattr(module, name, None)
    if made is None:
        functions = [n for n, found in vars(module).items() if callable(found)]
        place = function.rpartition(":")[0] or module.__name__
        raise UserFunctionError(
            f"{place} has no function {name}", hint=nearest(name, functions)
        )
    return made
