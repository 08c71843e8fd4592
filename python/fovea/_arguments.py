# SPDX-License-Identifier: Apache-2.0
"""Errors of calls whose arguments do not fit a function of the extension modules. The modules import this for the first
such call (python/src/arrays/arguments.h)."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Protocol, SupportsFloat, SupportsIndex

_Fits = Callable[[Any], bool]


def is_utf8(text: str) -> bool:
    """Returns whether the text can be encoded; a lone surrogate can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _integer(value: object) -> int | None:
    try:
        return operator.index(value) if isinstance(value, SupportsIndex) else None
    except TypeError:  # an array
        return None


def _is_integer(value: object) -> bool:
    return _integer(value) is not None


def _is_number(value: object) -> bool:
    return _is_integer(value) or isinstance(value, SupportsFloat)


def _list_of(fits: _Fits) -> _Fits:
    return lambda value: isinstance(value, Iterable) and not isinstance(value, str) and all(map(fits, value))


def _texts(value: object) -> list[str]:
    """Returns the text, or those of a list."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if isinstance(item, str)]


def _is_given(value: object) -> bool:
    return value is not None


# The annotations in the signatures: the words for an argument, and whether a value is one. Functions that take any
# object check it themselves, and only None does not reach them.
_KINDS: dict[str, tuple[str, _Fits]] = {
    "int": ("an integer", _is_integer),
    "float": ("a number", _is_number),
    "str": ("a str", lambda value: isinstance(value, str)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "None": ("None", lambda value: value is None),
    "PathLike[str]": ("a path", lambda value: isinstance(value, PathLike)),
    "Sequence[int]": ("a list of integers", _list_of(_is_integer)),
    "Sequence[float]": ("a list of numbers", _list_of(_is_number)),
    "Sequence[str]": ("a list of str", _list_of(lambda value: isinstance(value, str))),
    "NDArray[numpy.integer[typing.Any]]": ("an array of integers", _is_given),
    "tuple[int, int]": ("a pair of integers", _is_given),
    "_Alignment": ("an alignment", _is_given),
    "object": ("an object", lambda _: True),
    **dict.fromkeys(("Any", "_Input", "_Array", "ArrayT", "ArrayLike"), ("an array", _is_given)),
}

# The ranges of the integer types in C++, the widest first.
_RANGES: list[tuple[str, Callable[[int], bool]]] = [
    ("an integer of 64 bits", lambda n: -(2**63) <= n < 2**63),
    ("0 or more", lambda n: n >= 0),
    ("an integer of 32 bits", lambda n: n < 2**31),
]


def _joined(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


class _Parameter:
    """A parameter of a function: its name, the words for what it takes, and a test of a value."""

    def __init__(self, node: ast.arg, needed: bool) -> None:
        self.name, self.needed = node.arg, needed
        kinds = dict(map(self._kind, self._alternatives(node.annotation)))
        self.words = _joined(list(kinds))
        self.fits: _Fits = lambda value: any(fits(value) for fits in kinds.values())

    @classmethod
    def _alternatives(cls, node: ast.expr | None) -> list[ast.expr]:
        if isinstance(node, ast.BinOp):
            return cls._alternatives(node.left) + cls._alternatives(node.right)
        return [] if node is None else [node]

    @staticmethod
    def _kind(node: ast.expr) -> tuple[str, _Fits]:
        text = ast.unparse(node)
        if text.startswith("typing.Literal["):
            choices = ast.literal_eval(text.removeprefix("typing.Literal"))
            return _joined([f'"{choice}"' for choice in choices]), lambda value: isinstance(value, str)
        name = re.sub(r"^(?:\w+\.)+", "", text)
        if name in _KINDS:
            return _KINDS[name]
        shown = text.replace("._fovea.", ".").replace("._nn.", ".nn.") if "." in text else f"fovea.{name}"
        return f"a {shown}", lambda value: name in (base.__name__ for base in type(value).__mro__)


def _got(value: object) -> str:
    if isinstance(value, (list, tuple)) and value:
        return f"{type(value).__name__} of {_joined(list(dict.fromkeys(type(item).__name__ for item in value)))}"
    return "None" if value is None else type(value).__name__


class _Function(Protocol):
    __qualname__: str
    __nb_signature__: tuple[tuple[str, str | None, tuple[object, ...] | None], ...]


def mismatch(function: _Function, positional: Sequence[object], named: dict[str, object]) -> TypeError | ValueError:
    """Returns the error for arguments that the function of an extension module did not accept."""
    owner, _, called = (function.__qualname__ or "").rpartition(".")  # a property's setter has no name
    called = f"{owner if called == '__init__' else called}()"
    # A default value is a backslash and a number.
    signature = re.sub(r"\\=?\d+", "...", function.__nb_signature__[-1][0])
    signature = signature.replace("def (", "def setter(")
    definition = ast.parse(f"{signature}: ...").body[0]
    assert isinstance(definition, ast.FunctionDef)
    taken = definition.args
    nodes = taken.posonlyargs + taken.args
    if nodes and nodes[0].arg == "self":
        nodes, positional = nodes[1:], positional[1:]
    first_default = len(nodes) - len(taken.defaults)
    ordered = [_Parameter(node, i < first_default) for i, node in enumerate(nodes)]
    keywords = [_Parameter(n, d is None) for n, d in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)]
    parameters = {parameter.name: parameter for parameter in ordered + keywords}

    if len(positional) > len(ordered) and taken.vararg is None:
        rest = ", ".join(parameter.name for parameter in keywords)
        message = f"{called} takes {len(ordered)} positional arguments but {len(positional)} were given"
        return TypeError(f"{message}; the others have names: {rest}" if rest else message)
    given = dict(zip(parameters, positional, strict=False))
    for name, value in named.items():
        if name not in parameters:
            there_are = f"; there are {', '.join(parameters)}" if parameters else ""
            return TypeError(f"{called} got an unexpected keyword argument '{name}'{there_are}")
        if name in given:
            return TypeError(f"{called} got multiple values for argument '{name}'")
        given[name] = value
    for name, parameter in parameters.items():
        if parameter.needed and name not in given:
            return TypeError(f"{called} missing the required argument '{name}'")
    for name, value in given.items():
        if not parameters[name].fits(value):
            return TypeError(f"{name}: expected {parameters[name].words}, got {_got(value)}")
    # All types fit. So a text has no encoding, or an integer is out of the range of its C++ type.
    for name, value in given.items():
        for text in _texts(value):
            if not is_utf8(text):
                return ValueError(f"{name}: expected text that UTF-8 can encode, got {text!a:.60}")
    integers = {name: number for name, value in given.items() if (number := _integer(value)) is not None}
    for expected, fits in _RANGES:
        for name, number in integers.items():
            if not fits(number):
                return ValueError(f"{name}: expected {expected}, got {number}")
    wanted = ", ".join(f"{name} ({parameter.words})" for name, parameter in parameters.items())
    return TypeError(f"{called} expected {wanted}, got {', '.join(map(_got, given.values()))}")
