# SPDX-License-Identifier: Apache-2.0
"""Recordings: the attention of a model in a file, written while the model runs, and read again."""
