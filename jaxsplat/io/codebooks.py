"""Few values or rows that stand for many: what formats store when they store an index."""

from __future__ import annotations

import numpy as np

_ROUNDS = 30
_BINS = 4096


def codebook(values: np.ndarray, *, size: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Values that stand for all others with little squared error (Lloyd 1982), and which of them stands for each.

    Args:
      values: of any shape.
      size: of the codebook; with no more different values than that, nothing is lost.

    Returns:
      [size] ascending, and indices in the shape of `values`.
    """
    ordered, counts = np.unique(values.astype(np.float64), return_counts=True)
    if len(ordered) <= size:
        book = np.resize(ordered, size) if len(ordered) else np.zeros(size)
        book[len(ordered) :] = ordered[-1] if len(ordered) else 0.0
    else:
        # The best density goes as the cube root of that of the values (Panter and Dite 1951); a quarter is spread
        # evenly, so that outliers are near one too.
        mass, edges = np.histogram(ordered, _BINS, weights=counts)
        mass = np.cbrt(mass) + np.cbrt(mass).mean() / 3.0
        mass = np.concatenate([[0.0], np.cumsum(mass)])
        book = np.interp((np.arange(size) + 0.5) / size * mass[-1], mass, edges)
        number, total = (np.concatenate([[0.0], np.cumsum(x)]) for x in (counts, counts * ordered))
        for _ in range(_ROUNDS):
            ends = np.concatenate([[0], np.searchsorted(ordered, _between(book)), [len(ordered)]])
            held = np.diff(number[ends])
            book = np.sort(np.where(held > 0, np.diff(total[ends]) / np.maximum(held, 1), book))
    return book, np.searchsorted(_between(book), values)


def palette(rows: np.ndarray, *, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that stand for all others: halved at the median of the widest column, again and again (Heckbert 1982).

    Args:
      rows: [N, D].
      most: power of two; up to so many rows, nothing is lost.

    Returns:
      [P, D] float64 with P at most `most`, and the index [N] of the one that stands for each row.
    """
    rows = rows.astype(np.float64)
    count = len(rows)
    if count <= most:
        return rows, np.arange(count)
    order, starts = np.arange(count), np.array([0])
    while len(starts) < most:
        sizes = np.diff(np.append(starts, count))
        ordered = rows[order]
        widths = np.maximum.reduceat(ordered, starts) - np.minimum.reduceat(ordered, starts)
        cell = np.repeat(np.arange(len(starts)), sizes)
        column = ordered[np.arange(count), widths.argmax(1)[cell]]
        order = order[np.lexsort((column, cell))]
        starts = np.stack([starts, starts + sizes // 2], 1).ravel()
    sizes = np.diff(np.append(starts, count))
    index = np.empty(count, np.int64)
    index[order] = np.repeat(np.arange(most), sizes)
    return np.add.reduceat(rows[order], starts) / sizes[:, None], index


def _between(book: np.ndarray) -> np.ndarray:
    return 0.5 * (book[1:] + book[:-1])
