# SPDX-License-Identifier: Apache-2.0
"""The viewer of `fovea view` in notebooks: its server as a child process, and the state of its page."""
