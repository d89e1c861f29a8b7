"""Photographs read when they are needed, by threads, with a bound on the memory that they may take."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple, overload

import numpy as np
import numpy.typing

from jaxsplat.cameras import Lens
from jaxsplat.data.undistort import undistort
from jaxsplat.io.images import composite, downscaled, load_image

Alpha = Literal["blend", "mask"]
"""What transparency means: the background shows through, or the pixel is not to be looked at."""

Kind = Literal["pixels", "mask", "alpha"]

DEFAULT_MEMORY = 4 << 30
"""Bytes of pictures that are kept, where nothing else is said."""

_WORKERS = 4
_HALF, _WHITE = 128, 255


@dataclasses.dataclass(frozen=True)
class Photograph:
    """How to make the picture of a view from its files.

    Attributes:
      path: of the picture.
      mask_path: of its mask, whose bright pixels count; None where all do.
      K: [3, 3] intrinsics in pixels of the file.
      lens: distortion to be removed.
      downscale: integer factor by which the picture is then shrunk.
    """

    path: Path
    mask_path: Path | None
    K: np.ndarray
    lens: Lens
    downscale: int


class Picture(NamedTuple):
    """A picture ready for training.

    Attributes:
      pixels: [H, W, 3] uint8.
      mask: [H, W] bool, the pixels that count; None where all do.
      alpha: [H, W] uint8, how much of a pixel is scene and not background; None where all is.
    """

    pixels: np.ndarray
    mask: np.ndarray | None
    alpha: np.ndarray | None


class Canvas(NamedTuple):
    """What the pictures of a capture have in common.

    Attributes:
      height: in pixels.
      width: in pixels.
      masked: whether they have masks.
      transparent: whether they have alphas.
    """

    height: int
    width: int
    masked: bool
    transparent: bool


def develop(photograph: Photograph, canvas: Canvas, *, alpha: Alpha, background: np.ndarray) -> Picture:
    """Reads a photograph, removes the distortion, shrinks it and puts it into the upper left corner of a canvas.

    Args:
      photograph: the files.
      canvas: what is to be made.
      alpha: what transparency means.
      background: [3] colour in 0..1 behind transparent pixels.

    Returns:
      The picture. A pixel of its mask counts where all of what it shows does.

    Raises:
      InputError: where a file cannot be read.
    """
    pixels = load_image(photograph.path)
    size = pixels.shape[:2]
    counts, opaque = np.full(size, _WHITE, np.uint8), np.full(size, _WHITE, np.uint8)
    if pixels.shape[-1] == 4:
        if alpha == "blend":
            opaque = pixels[..., 3]
        else:
            counts[pixels[..., 3] < _HALF] = 0
            pixels = pixels[..., :3]
    if photograph.mask_path is not None:
        counts[~load_mask(photograph.mask_path, *size)] = 0

    def placed(image: np.ndarray) -> np.ndarray:
        small = downscaled(undistort(image, photograph.K, photograph.lens), photograph.downscale)
        whole = np.zeros((canvas.height, canvas.width, *small.shape[2:]), np.uint8)
        whole[: small.shape[0], : small.shape[1]] = small
        whole.flags.writeable = False  # it is shared by all who ask for it
        return whole

    return Picture(
        placed(composite(pixels, background)),
        placed(counts) == _WHITE if canvas.masked else None,
        placed(opaque) if canvas.transparent else None,
    )


def load_mask(path: Path, height: int, width: int) -> np.ndarray:
    """Reads which pixels of a picture count: the bright ones; where the file holds only 0 and 1, the ones.

    Args:
      path: of the mask; another size than the picture's is stretched to it.
      height: of the picture.
      width: of the picture.

    Returns:
      [H, W] bool.

    Raises:
      InputError: where the file cannot be read.
    """
    pixels = load_image(path)
    values = pixels[..., :3].max(-1)
    counts = values > 0 if values.max() <= 1 else values >= _HALF
    if pixels.shape[-1] == 4:
        counts &= pixels[..., 3] >= _HALF
    rows = (np.arange(height) * 2 + 1) * len(counts) // (2 * height)
    columns = (np.arange(width) * 2 + 1) * counts.shape[1] // (2 * width)
    return counts[rows[:, None], columns]


class PictureStore:
    """Pictures of views by number: read by threads when they are needed, and the last ones kept."""

    def __init__(self, read: Callable[[int], Picture], canvas: Canvas, *, views: int, memory: int) -> None:
        self.views, self.canvas = views, canvas
        size = canvas.height * canvas.width * (3 + canvas.masked + canvas.transparent)
        # A third of the bound each: the pictures here, those that training stacks, and the copy that JAX makes of them.
        self.capacity = max(1, memory // 3 // size)
        self._read = read
        self._kept: OrderedDict[int, Future[Picture]] = OrderedDict()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_WORKERS, "pictures")

    def get(self, view: int) -> Picture:
        """The picture of a view."""
        return self._future(view).result()

    def prefetch(self, views: Iterable[int]) -> None:
        """Begins to read pictures that will be asked for soon; of more than can be kept, the first."""
        for view in itertools.islice(views, self.capacity):
            self._future(view)

    def _future(self, view: int) -> Future[Picture]:
        with self._lock:
            if view not in self._kept:
                while len(self._kept) >= self.capacity:
                    self._kept.popitem(last=False)
                self._kept[view] = self._threads.submit(self._read, view)
            self._kept.move_to_end(view)
            return self._kept[view]


class Images(Sequence[np.ndarray]):
    """The pictures, masks or alphas of some views: `images[3]` reads one, `images[indices]` chooses without reading.

    Attributes:
      shape: (V, H, W, 3) of pictures, uint8; (V, H, W) of masks, bool, and of alphas, uint8.
    """

    def __init__(self, store: PictureStore, kind: Kind, views: np.ndarray | None = None) -> None:
        self._store = store
        self._kind: Kind = kind
        self._views = np.arange(store.views) if views is None else views
        self.shape = (len(self._views), store.canvas.height, store.canvas.width, *((3,) if kind == "pixels" else ()))

    def __len__(self) -> int:
        return len(self._views)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray) -> Images: ...
    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray | Images:
        chosen = self._views[index]
        if chosen.ndim:
            return Images(self._store, self._kind, chosen)
        return getattr(self._store.get(int(chosen)), self._kind)

    def __array__(self, dtype: np.typing.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the pictures are in files: an array of them is always a copy")
        self.prefetch(range(len(self)))
        stacked = np.stack(list(self))
        return stacked if dtype is None else stacked.astype(dtype, copy=False)

    @property
    def capacity(self) -> int:
        """How many pictures may be held in a copy within the bound on memory."""
        return self._store.capacity

    def prefetch(self, indices: Iterable[int]) -> None:
        """Begins to read pictures that will be asked for soon."""
        self._store.prefetch(int(self._views[index]) for index in indices)
