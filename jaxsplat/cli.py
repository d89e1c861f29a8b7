"""The command `jaxsplat`: train, render, eval, view, demo; convert, info, export."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; errors become one line on standard error.

    Args:
      arguments: without the program's name; those of the process when None.

    Returns:
      Exit code: 0 for success, 1 for an error, 2 for wrong arguments, 130 after an interrupt, 141 where
      nobody reads the output any more.

    Example:
      >>> main(["train", "captures/fox", "--out", "fox", "--downscale", "2"])
    """
    try:
        from jaxsplat.train import commands
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "jaxsplat":
            raise
        print(f"jaxsplat: {error.name} is not installed; run: pip install 'jaxsplat[train]'", file=sys.stderr)
        return 1
    try:
        try:
            return commands.run(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer would fail once more when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("\njaxsplat: interrupted", file=sys.stderr)
        return 130
    except (ValueError, FloatingPointError) as error:
        if not isinstance(error, FloatingPointError) and not _is_about_input(error):
            raise
        print(f"jaxsplat: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        reason = error.strerror or str(error)
        print(f"jaxsplat: error: {error.filename or 'file'}: {reason}", file=sys.stderr)
        return 1


def _is_about_input(error: Exception) -> bool:
    """Other exceptions are our mistakes and keep their traceback."""
    from jaxsplat.io.files import InputError

    return isinstance(error, InputError)
