"""A mutant put into functions that are loaded already.

A process that has imported the program and collected its tests need not do so again for
a mutant inside a function: the function gets the code of the mutant. What a module
does when it is imported (constants, defaults, decorators) cannot be changed that way.
"""

from __future__ import annotations

import ast
import gc
import os
import pathlib
from collections import defaultdict
from types import CodeType, FunctionType

#: File from the top of the tree, first line, name.
Place = tuple[str, int, str]


def loaded(root: pathlib.Path) -> dict[Place, list[FunctionType]]:
    """All functions of this process whose source is under the root."""
    top = os.path.realpath(root) + os.sep
    real: dict[str, str] = {}
    found: dict[Place, list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType:
            code = one.__code__
            name = code.co_filename
            if name not in real:
                real[name] = os.path.realpath(name)
            if real[name].startswith(top):
                file = real[name].removeprefix(top)
                found[file, code.co_firstlineno, code.co_name].append(one)
    return found


def outermost(source: str, line: int) -> ast.FunctionDef | None:
    """The function that is in no other one and whose body has the line."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef):
            if node.body[0].lineno <= line <= (node.end_lineno or node.lineno):
                return node
        else:
            waiting.extend(ast.iter_child_nodes(node))
    return None


def swap(
    functions: dict[Place, list[FunctionType]], file: str, source: str, line: int
) -> bool:
    """Give the functions the code of the mutant; False where that cannot be done."""
    node = outermost(source, line)
    if node is None:
        return False
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    code = _code(compile(source, file, "exec"), first, node.name)
    targets = functions.get((file, first, node.name))
    if code is None or not targets:
        return False
    for function in targets:
        if len(function.__code__.co_freevars) != len(code.co_freevars):
            return False
    for function in targets:
        named = code.replace(co_filename=function.__code__.co_filename)
        function.__code__ = named
    return True


def _code(compiled: CodeType, first: int, name: str) -> CodeType | None:
    for constant in compiled.co_consts:
        if isinstance(constant, CodeType):
            if (constant.co_firstlineno, constant.co_name) == (first, name):
                return constant
            inner = _code(constant, first, name)
            if inner is not None:
                return inner
    return None
