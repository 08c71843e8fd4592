# SPDX-License-Identifier: Apache-2.0
"""Hooks that a recording adds to the modules of a model inside its block."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn


class Hook:
    """A function that is added to a module inside a block of record(). It is called on the thread of the block;
    `elsewhere`, if there is one, on others, which use the model without being recorded.

    Copies of the module are refused: they would keep the hook when the block ends, and report to the recording of
    another model.
    """

    def __init__(self, function: Callable[..., Any], elsewhere: Callable[..., Any] | None = None) -> None:
        self._function, self._elsewhere = function, elsewhere
        self._thread = threading.get_ident()

    def __call__(self, *args: object, **kwargs: object) -> object:
        if threading.get_ident() == self._thread:
            return self._function(*args, **kwargs)
        return None if self._elsewhere is None else self._elsewhere(*args, **kwargs)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        # Called for each hook by copy.deepcopy() and by pickle.
        raise ValueError(
            "model: expected copies to be made before or after the block of record(), got a module that is copied or "
            "pickled inside it"
        )
