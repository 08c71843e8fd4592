# SPDX-License-Identifier: Apache-2.0
"""view(): the pages of `fovea view`, in the output of a notebook's cell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _fovea
from .._fovea import Mask, RelativeTable
from .._recording.recording import Recording
from .address import ViewState, address_of, changed, state_of
from .process import Server, make_folder

if TYPE_CHECKING:
    from .._fovea import _Alignment, _Array, _Input, _Numbers

_engine: Any = _fovea  # includes the private functions that the stubs omit
_STATE = "/api/v1/state"
_LOCAL = ("http://localhost:*", "http://127.0.0.1:*")


class View:
    """A viewer that view() has started. As the last value of a notebook's cell, it shows its page below the cell.

        >>> viewer = fovea.view("run.safetensors")  # doctest: +SKIP
        >>> viewer.state = {"layer": 3, "head": 1, "locked": (11, 2)}  # doctest: +SKIP

    url     the address of the page, which a browser on this machine can open, too. It contains the secret that lets a
            page read the inputs
    inputs  the ids of the inputs
    height  of the page in a notebook, in CSS pixels

    The server runs until close(), until the with block ends, or until this process ends, however it ends.
    """

    def __init__(self, server: Server, height: int) -> None:
        self._server = server
        try:
            self._open(height)
        except BaseException:
            server.close()
            raise

    def _open(self, height: int) -> None:
        self._entries: list[dict[str, Any]] = self._server.request("GET", "/api/v1/inputs")["inputs"]
        self.inputs: list[str] = [entry["id"] for entry in self._entries]
        self.height = height
        with_heads = [entry for entry in self._entries if entry["layers"]]
        if len(self._entries) == 1 and with_heads:
            one_head = len(with_heads[0]["layers"]) == len(with_heads[0]["layers"][0]["heads"]) == 1
            self.state = {"page": "map" if one_head else "heads"}

    def _shown(self) -> str:
        return str(self._server.request("GET", _STATE)["address"])

    @property
    def url(self) -> str:
        """The address of the page, with its state when it was last reported."""
        path, _, fragment = (self._shown() or "/").partition("#")
        return f"{self._server.origin}{path}#token={self._server.token}{'&' if fragment else ''}{fragment}"

    @property
    def state(self) -> ViewState:
        """The state of the page: layer, head, centre, scale and locked cell (fovea.ViewState). The page reports it
        within half a second.

        Can be set to a ViewState, or to a dict of the fields that change. Raises ValueError if the inputs do not have
        it, OSError if the server has ended.
        """
        return state_of(self._shown() or "/")

    @state.setter
    def state(self, state: ViewState | Mapping[str, Any]) -> None:
        before = self._shown()
        if isinstance(state, ViewState):
            state = {name: getattr(state, name) for name in ViewState.__dataclass_fields__}
        elif not isinstance(state, Mapping):
            raise TypeError(f"state: expected a ViewState or a dict, got {type(state).__name__}")
        new = changed(state_of(before or "/"), state, self._entries)
        self._server.request("PUT", _STATE, {"address": address_of(new, before), "program": True})

    @property
    def closed(self) -> bool:
        """Whether the server has ended."""
        return self._server.closed

    def close(self) -> None:
        """Ends the server, within a second, and removes temporary files. Its pages keep what they show."""
        self._server.close()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        import html

        if self.closed:
            return "<p>This viewer is closed.</p>"
        return (
            f'<iframe src="{html.escape(self.url)}" title="fovea view" allow="clipboard-write; fullscreen" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<View {'closed' if self.closed else self.url}>"


def view(
    *inputs: Recording | str | os.PathLike[str] | _Input,
    causal: bool = False,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    lse: _Input | None = None,
    mask: Mask | _Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    bias: _Array | None = None,
    alibi: bool | _Numbers | None = None,
    relative: RelativeTable | None = None,
    sinks: _Numbers | None = None,
    alignment: _Alignment | None = "bottom-right",
    origins: str | Sequence[str] = _LOCAL,
    height: int = 640,
    port: int = 0,
    memory: int | None = None,
    threads: int | None = None,
) -> View:
    """Opens the viewer of `fovea view`: every weight of every head, at any zoom, as a page in the notebook. Starts the
    server as a child process.

    inputs  recordings or their files; files of tensors or scenes; or two arrays, query and key as in attention().
            None: the examples
    causal  the mask fovea.causal(), for arrays and files of tensors
    tokens  a text for each query and key, for arrays; or query_tokens and key_tokens
    lse, mask, scale, softcap, bias, alibi, relative, sinks, alignment  as in fovea.map(), for arrays
    origins  the addresses of pages that may contain the viewer's in a frame, such as "http://localhost:8888"; "*" as
            the port allows any. The default allows notebooks on this machine
    height  of the page in a notebook, in CSS pixels
    port    0: a free one
    memory  bytes for tiles and statistics; None: 1 GiB
    threads  of the server; None: all processors

    Returns a View. Arrays are written to a temporary file, which is removed when the viewer is closed. The server
    listens on this machine only: for a notebook on another machine, forward `port` (ssh -L).

    Raises ValueError and TypeError, with the argument, the expected and the actual value; OSError if a file can't be
    read or the server can't start.

        >>> with fovea.view("run.safetensors") as viewer:  # doctest: +SKIP
        ...     print(viewer.url)
    """
    options = {
        "mask": mask,
        "scale": scale,
        "softcap": softcap,
        "bias": bias,
        "alibi": alibi,
        "relative": relative,
        "sinks": sinks,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if alignment != "bottom-right":
        given["alignment"] = alignment
    if lse is not None:
        given["lse"] = lse
    texts = {"tokens": tokens, "query_tokens": query_tokens, "key_tokens": key_tokens}
    lists = {name: list(each) for name, each in texts.items() if each is not None}
    if tokens is not None and len(lists) > 1:
        raise TypeError("tokens: expected None beside query_tokens and key_tokens, got texts")
    command = _server_options(origins, port, memory, threads)
    files = [each for each in inputs if isinstance(each, (Recording, str, os.PathLike))]
    arrays = [each for each in inputs if not isinstance(each, (Recording, str, os.PathLike))]
    if not arrays:
        for name in (*given, *lists):
            raise TypeError(f"{name}: expected with arrays only; files have their own, got it with files")
        paths = [os.path.abspath(each.path if isinstance(each, Recording) else each) for each in files]
        for path in paths:
            os.stat(path)  # raises FileNotFoundError
        return View(Server([*command, *(["--causal"] if causal else []), *paths], None), height)
    if files or len(arrays) != 2:
        raise TypeError(f"inputs: expected files and recordings, or two arrays, query and key, got {_kinds(inputs)}")
    if causal:
        given["mask"] = _fovea.causal() if mask is None else _both(mask)
    folder = make_folder()
    try:
        path = _write(folder, arrays[0], arrays[1], given, lists)
        return View(Server([*command, path], folder), height)
    except BaseException:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        raise


def _both(mask: object) -> Mask:
    if not isinstance(mask, Mask):
        raise TypeError(f"mask: expected a Mask beside causal=True, got {type(mask).__name__}")
    return _fovea.causal() & mask


def _kinds(inputs: Sequence[object]) -> str:
    return ", ".join(type(each).__name__ for each in inputs)


def _server_options(origins: str | Sequence[str], port: int, memory: int | None, threads: int | None) -> list[str]:
    found = ["--port", str(port)]
    embedding = [f"--embed={origin}" for origin in ([origins] if isinstance(origins, str) else origins)]
    if not embedding:
        raise ValueError('origins: expected at least one, such as "http://localhost:8888", got none')
    found += embedding
    if memory is not None:
        found += ["--memory", str(memory)]
    if threads is not None:
        found += ["--threads", str(threads)]
    return found


def _write(folder: str, query: _Input, key: _Input, given: dict[str, Any], lists: dict[str, list[str]]) -> str:
    """Writes the recording of two arrays and returns its path."""
    entry: dict[str, Any] = {"name": "arrays", "query": query, "key": key, **given}
    _, batch, _, q_len, kv_len = _engine._weights_shape(query, key)
    for name, length in (("query", q_len), ("key", kv_len)):
        given_name = "tokens" if "tokens" in lists else f"{name}_tokens"
        own = lists.get(given_name)
        if own is None:
            continue
        if len(own) != length:
            raise ValueError(f"{given_name}: expected {length}, one per {name}, got {len(own)}")
        entry[f"{name}_tokens"] = [given_name] * batch
    path = os.path.join(folder, "arrays.safetensors")
    Recording.write(path, [entry], lists)
    return path
