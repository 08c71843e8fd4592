# SPDX-License-Identifier: Apache-2.0
"""Attention calls of PyTorch models, reported to observers, with their masks as rules. Needs torch."""
