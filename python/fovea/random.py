# SPDX-License-Identifier: Apache-2.0
"""NumPy's legacy random stream, as used by scenes."""

from ._fovea import RandomState

__all__ = ["RandomState"]
