# SPDX-License-Identifier: Apache-2.0
"""NumPy's legacy random stream, which scenes draw from."""

from ._fovea import RandomState

__all__ = ["RandomState"]
