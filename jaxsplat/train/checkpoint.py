"""The whole state of a run in one file, so that a run goes on exactly where it stopped."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.io.files import InputError, atomic_write
from jaxsplat.train.state import TrainState

_SETTINGS = "settings"
_MEANS = "splats.means"


def save_checkpoint(path: Path | str, state: TrainState, settings: dict[str, Any]) -> None:
    """Writes the state as .npz; the old file stays whole until the new one is.

    Args:
      path: file to write.
      state: of the run.
      settings: what the run was started with, as JSON values.

    Raises:
      OSError: where the file cannot be written.

    Example:
      >>> save_checkpoint("checkpoint.npz", state, {"steps": 5000})
    """
    arrays = {name: np.asarray(leaf) for name, leaf in _named_leaves(state)}
    with atomic_write(path) as file:
        np.savez(file, allow_pickle=False, **{_SETTINGS: np.array(json.dumps(settings)), **arrays})


def load_settings(path: Path | str) -> dict[str, Any]:
    """Reads the settings of a checkpoint.

    Args:
      path: file to read.

    Returns:
      What `save_checkpoint` was given.

    Raises:
      InputError: where the file is missing or damaged.

    Example:
      >>> load_settings("checkpoint.npz")["steps"]
      5000
    """
    return json.loads(str(_read(Path(path), [_SETTINGS])[0]))


def load_checkpoint(path: Path | str, like: TrainState) -> TrainState:
    """Reads a state, bit for bit as it was saved.

    Args:
      path: file to read.
      like: a state of the same run, for the structure and the shapes.

    Returns:
      The saved state.

    Raises:
      InputError: where the file is missing or damaged, or belongs to a run of other shapes.

    Example:
      >>> state = load_checkpoint("checkpoint.npz", init_state(config, points, colors))
    """
    path = Path(path)
    expected = _named_leaves(like)
    values = _read(path, [name for name, _ in expected])
    for (name, leaf), value in zip(expected, values, strict=True):
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise InputError(
                f"{path}: {name} should be {leaf.dtype}{list(leaf.shape)}, got {value.dtype}{list(value.shape)}"
            )
    arrays = [jnp.asarray(value) for value in values]
    state = jax.tree.unflatten(jax.tree.structure(_with_plain_key(like)), arrays)
    return state._replace(key=jax.random.wrap_key_data(state.key))


def stored_rows(path: Path | str) -> int:
    """Reads how many rows the arrays of a checkpoint have, in use or not.

    Args:
      path: file to read.

    Returns:
      The number.

    Raises:
      InputError: where the file is missing or damaged.

    Example:
      >>> stored_rows("checkpoint.npz")
      80000
    """
    return len(_read(Path(path), [_MEANS])[0])


def _with_plain_key(state: TrainState) -> TrainState:
    return state._replace(key=jax.random.key_data(state.key))


def _named_leaves(state: TrainState) -> list[tuple[str, jax.Array]]:
    leaves = jax.tree_util.tree_leaves_with_path(_with_plain_key(state))
    return [(jax.tree_util.keystr(path).strip("."), leaf) for path, leaf in leaves]


def _read(path: Path, names: list[str]) -> list[np.ndarray]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive]
            if missing:
                raise InputError(f"{path}: no checkpoint of this program: it lacks {', '.join(missing[:3])}")
            return [archive[name] for name in names]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: damaged checkpoint ({error})") from None
