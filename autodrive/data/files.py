"""Writing and reading files so that none is ever half there."""

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

# What numpy's own pickles are made of, beside plain containers; see read_pickle.
_ALLOWED = {
    "builtins": {"dict", "list", "tuple", "set", "complex", "bytearray"},
    "numpy": {"dtype", "ndarray"},
    **{f"numpy.{core}.multiarray": {"_reconstruct", "scalar"} for core in ("core", "_core")},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
    "_codecs": {"encode"},
}


def write_bytes(path: str | Path, content: bytes) -> None:
    """Writes a file under a temporary name and moves it to its own."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | Path, content: Any, indent: int | None = None) -> None:
    write_bytes(path, json.dumps(content, indent=indent).encode())


def write_pickle(path: str | Path, content: Any) -> None:
    write_bytes(path, pickle.dumps(content, protocol=4))


class _DataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, and only data is read")


def read_pickle(path: str | Path) -> Any:
    """Reads a pickle of plain containers, numbers and numpy arrays; anything else is refused by name.

    Raises:
        FileNotFoundError, ValueError: naming the file and what is wrong with it.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        return _DataUnpickler(io.BytesIO(path.read_bytes())).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, ImportError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
