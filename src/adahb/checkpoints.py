"""Checkpoints that survive what stops a training: written whole, read only as they were written.

``torch.save`` into a file that is there destroys the old checkpoint before the new one is whole,
and ``torch.load`` takes a file in which bytes have changed for what it now says.  Here the file is
replaced in one moment, and ends with a checksum of all of it.  It remains one that plain
``torch.load`` reads.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

from adahb._files import write_whole

__all__ = ["load", "save"]

_MARK = b"\nsha256 "
_LENGTH = len(_MARK) + 2 * hashlib.sha256().digest_size


def save(state: Any, path: str | os.PathLike[str]) -> None:
    """Write a checkpoint: whoever looks finds the old one or all of the new one, always.

    ``state`` is what ``torch.save`` takes; keep to tensors, numbers, strings, and lists and
    dictionaries of them, such as state dicts, since nothing else is loaded.  A process that is
    killed while it writes leaves the old checkpoint, and its unfinished file goes with the next
    call.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.pt"
    >>> save({"step": 100}, path)
    >>> load(path)
    {'step': 100}
    """
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.write(_seal(buffer.getbuffer()))
    write_whole(Path(path), buffer.getbuffer())


def load(path: str | os.PathLike[str], map_location: Any = "cpu") -> Any:
    """Read what :func:`save` has written; a file with another byte is an error that names it.

    Code in a file is never run (``weights_only=True``).  ``map_location`` is that of
    ``torch.load``; optimizers and modules move what they load to where their weights are.
    """
    import torch

    content = Path(path).read_bytes()
    whole = memoryview(content)
    if len(content) < _LENGTH or bytes(whole[-_LENGTH:]) != _seal(whole[:-_LENGTH]):
        raise ValueError(
            f"{os.fspath(path)} is not a checkpoint as it was written: it is cut short or changed, "
            "or not from adahb.checkpoints.save; delete it and go on from an older one"
        )
    return torch.load(io.BytesIO(content), map_location=map_location, weights_only=True)


def _seal(content: memoryview) -> bytes:
    return _MARK + hashlib.sha256(content).hexdigest().encode()
