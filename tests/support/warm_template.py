"""A template: it imports what takes long, and is forked for each process that `warm_starts` starts.

A forked process becomes what Python would have made of its words, and has a template of its own, from which
its fork server, for example, is forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import logging
import os
import runpy
import signal
import socket
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.machinery import PathFinder
from multiprocessing import process
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from exporter_sources import read_once
from quick_end import run_to_the_end
from warm_starts import Template, warm_all_below

#: Bytes of a request: the words and the environment of a process.
_LARGEST = 2**18
#: Descriptors from here on are nobody's.
_SPARE = 512
#: What forked processes need not read again in Python's source.
_reading = contextlib.ExitStack()


def _import_what_takes_long(exporters: bool) -> None:
    # Not Arrow: it starts a thread.
    for name in ("pytest", "numpy.ma", "psutil", "msgspec", "rich.console", "onnx", "torch", "torch._dynamo"):
        importlib.import_module(name)
    if exporters:
        _export()
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads, which no forked process has"
    gc.collect()
    gc.freeze()


def _export() -> None:
    from torch import cuda, nn, onnx, zeros

    # What the first export imports. It asks for GPUs: CUDA's driver would be of no use to forked processes.
    with contextlib.suppress(ImportError):
        # With it the exporter shows its progress, for which it starts a thread.
        from tqdm import tqdm

        tqdm.monitor_interval = 0
    no_gpu = patch.multiple(cuda, is_available=lambda: False, device_count=lambda: 0)
    no_guard = patch("torch._C._ensureCUDADeviceGuardSet", lambda: None, create=True)
    logging.disable(logging.WARNING)
    # Kept for as long as this process lives, and those that are forked from it.
    _reading.enter_context(read_once())
    with no_gpu, no_guard, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        onnx.export(nn.ReLU().eval(), (zeros(1),), dynamo=True, verbose=False)
        onnx.export(nn.ReLU().eval(), (zeros(1),), os.devnull, dynamo=False, verbose=False)
    logging.disable(logging.NOTSET)


def _serve(channel: socket.socket) -> None:
    """Fork for each request; return in the forked process, which is then ready to run its words."""
    while True:
        request, descriptors = _forked(channel)
        # Out of the way of the numbers that they are to have.
        channel.close()
        moved = [_moved(descriptor) for descriptor in descriptors]
        if request["new_session"]:
            os.setsid()
        ours, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            break
        # The template of the process that has just been forked; it is to have done nothing, either.
        _close_all_but(channel.fileno())
        ours.detach()
    channel.close()
    own = Template(socket.socket(fileno=_moved(ours.detach())))
    _become(request, moved)
    warm_all_below(own)
    run_to_the_end(partial(_run, request["words"]))


def _forked(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request; in the forked process, the request with the descriptors that came with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _LARGEST, 64)
        if not message:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            between = os.getpid()
            child = os.fork()
            if child:
                os.write(writing, str(child).encode())
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0005)
            os.close(reading)
            os.close(writing)
            return json.loads(message), descriptors
        for descriptor in (writing, *descriptors):
            os.close(descriptor)
        # From here on the child has the parent that asked for it.
        os.waitpid(between, 0)
        channel.send(os.read(reading, 64))
        os.close(reading)


def _moved(descriptor: int) -> int:
    found = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _SPARE)
    os.close(descriptor)
    return found


def _close_all_but(kept: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        # One of them was the folder's.
        with contextlib.suppress(OSError):
            if number > 2 and number != kept:
                os.close(number)


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Give this process what it would have been started with."""
    for number, descriptor in zip(request["numbers"], descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    process.ORIGINAL_DIR = request["directory"]  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.orig_argv = [sys.executable, *request["words"]]
    _show(sys.orig_argv)


def _show(words: Sequence[str]) -> None:
    """Have others see these words as this process's, in place of its template's."""
    start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    said = "\0".join(words).encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, said, len(said))


def _run(words: list[str]) -> None:
    """Do what ``python WORDS`` does."""
    unbuffered, unwritten = "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"
    while words[0] in ("-u", "-B"):
        os.environ[{"-u": unbuffered, "-B": unwritten}[words.pop(0)]] = "1"
    sys.dont_write_bytecode = bool(os.environ.get(unwritten))
    _open_streams(buffered=not os.environ.get(unbuffered))
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    importlib.invalidate_caches()
    # Debian's Python has one of its own, which the template has imported; the path's comes first.
    sys.modules.pop("sitecustomize", None)
    if PathFinder.find_spec("sitecustomize", sys.path):
        importlib.import_module("sitecustomize")
    sys.modules["__main__"] = main = ModuleType("__main__")
    first, *rest = words
    if first == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv[:] = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    else:
        sys.path.insert(0, str(Path(first).resolve().parent))
        sys.argv[:] = [first, *rest]
        main.__dict__.update(__file__=first)
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


def _open_streams(*, buffered: bool) -> None:
    sys.stdin = os.fdopen(0, closefd=False)
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw = os.fdopen(number, "wb", -1 if buffered else 0, closefd=False)
        lines = number == 2
        text = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines, write_through=not buffered)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


if __name__ == "__main__":
    _import_what_takes_long(sys.argv[2] == "exporters")
    # The folder of this file.
    del sys.path[0]
    _serve(socket.socket(fileno=int(sys.argv[1])))
