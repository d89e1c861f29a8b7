"""A capture: photographs with known cameras, ready for training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsplat.cameras import Lens
from jaxsplat.data.colmap import find_models, load_colmap
from jaxsplat.data.depths import Depths, ViewDepths, grid_pixels, map_depths, no_depths, view_depths
from jaxsplat.data.frame import Source
from jaxsplat.data.llff import POSES, load_llff
from jaxsplat.data.locate import listed
from jaxsplat.data.optics import pixel_rays
from jaxsplat.data.pictures import (
    DEFAULT_MEMORY,
    Alpha,
    Canvas,
    Images,
    Photograph,
    Picture,
    PictureStore,
    develop,
)
from jaxsplat.data.transforms import find_transforms, load_transforms
from jaxsplat.data.undistort import PINHOLE, source_pixels
from jaxsplat.data.views import View, canvas_size, find_views, joined_lens
from jaxsplat.io.files import InputError
from jaxsplat.io.images import load_image
from jaxsplat.io.ply import PointCloud

HOLD_OUT_EVERY = 8
"""Every 8th view by name is kept out of training, the field's habit."""


class Cameras(NamedTuple):
    """Where pictures are taken from.

    Attributes:
      names: of the views, sorted.
      viewmats: [V, 4, 4] float32 world to camera, OpenCV axes.
      Ks: [V, 3, 3] float32 intrinsics in pixels.
      width: in pixels, of every view.
      height: in pixels, of every view.
      lens: of the pictures as they were taken, coefficients [V, n]; None where they are free of distortion.
    """

    names: tuple[str, ...]
    viewmats: np.ndarray
    Ks: np.ndarray
    width: int
    height: int
    lens: Lens | None = None


@dataclasses.dataclass(frozen=True)
class Capture:
    """Photographs of a scene.

    Attributes:
      kind: what was found, in words.
      cameras: one view a photograph.
      images: [V, H, W, 3] uint8; an array, or `Images` that reads a picture when it is indexed.
      masks: [V, H, W] bool, the pixels that count, likewise; None where all do.
      alphas: [V, H, W] uint8, how much of a pixel is scene and not background, likewise; None where all is.
      held_out: [V] bool, the views that are for evaluation only.
      points: sparse points of the scene, or None.
      depths: what each view is known to see, from maps or of the points, read when it is indexed; None where the files
        do not say.
      background: [3] float32 colour in 0..1 behind the scene.
      files: of the pictures and the masks.
      notes: what the user should know about the loading, a sentence each.
    """

    kind: str
    cameras: Cameras
    images: np.ndarray | Images
    masks: np.ndarray | Images | None
    alphas: np.ndarray | Images | None
    held_out: np.ndarray
    points: PointCloud | None
    depths: Sequence[ViewDepths] | None
    background: np.ndarray
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def load_capture(
    path: Path | str,
    *,
    downscale: int = 1,
    background: tuple[float, float, float] | None = None,
    alpha: Alpha = "blend",
    memory: int = DEFAULT_MEMORY,
    undistort: bool = True,
    held_out: Sequence[str] = (),
) -> Capture:
    """Loads a capture of any kind: transforms.json, Blender's transforms_train.json, COLMAP's models, poses_bounds.npy.

    Pictures are found by name and read when they are needed. Lens distortion is removed at full size, unless it is to
    be kept: a picture keeps its size, its focal length is zoomed so that every pixel is known. Then the picture is
    shrunk. Listed pictures that
    are missing or unreadable are left out, and noted. What `masks` beside `images`, or `x.mask.png`, make dark does
    not count, and a picture of which nothing counts is left out, and noted; pictures of several sizes are padded with
    what does not count.

    Args:
      path: the folder, the .json file, or the folder of a COLMAP model.
      downscale: integer factor by which the pictures are shrunk. Where there is a folder `images_4`, it is used for
        what is divisible by 4.
      background: colour in 0..1 behind transparent pictures; None means white where there are any, otherwise black.
      alpha: what transparency means: the background shows through, or the pixel does not count.
      memory: bound in bytes on the pictures that are kept; more are read again when they are needed.
      undistort: remove lens distortion; otherwise the pictures stay as they are, and the cameras have a lens.
      held_out: names of the views that are for evaluation only, as in `cameras.names` or the end of the path. By
        default what the files say (Blender's transforms_test.json, nerfstudio's lists of names), otherwise every 8th.

    Returns:
      The capture, views sorted by name.

    Raises:
      InputError: naming the file and the field.

    Example:
      >>> capture = load_capture("captures/fox", downscale=2)
      >>> capture.images.shape
      (50, 480, 270, 3)
    """
    source = _source(path, downscale)
    views, notes = find_views(source, downscale=downscale, need_pictures=True, undistort=undistort)
    transparent = alpha == "blend" and _any_transparent(views)
    if background is None:
        background = (1.0, 1.0, 1.0) if transparent else (0.0, 0.0, 0.0)
    store = _store(views, alpha, np.array(background, np.float32), transparent, memory)
    shown, notes = _shown(views, store, alpha, notes)
    views = [views[i] for i in shown]
    evaluated = _held_out(source.path, views, held_out)
    training = int((~evaluated).sum())
    if training < 2:
        raise InputError(
            f"{source.path}: {len(views)} usable images leave {training} for training, at least 2 are needed; "
            + " ".join((f"{len(views) - training} are held out.", *notes))
        )
    images = Images(store, "pixels", shown)
    if not any(image.any() for image in images):
        raise InputError(f"{source.path}: every pixel of all {len(images)} images is black")
    return Capture(
        kind=source.kind,
        cameras=_cameras(views),
        images=images,
        masks=Images(store, "mask", shown) if store.canvas.masked else None,
        alphas=Images(store, "alpha", shown) if transparent else None,
        held_out=evaluated,
        points=source.points,
        depths=_depths(source, views),
        background=np.array(background, np.float32),
        files=tuple(file for view in views for file in (view.path, view.mask_path) if file is not None),
        notes=(*source.notes, *notes),
    )


def load_cameras(path: Path | str, *, downscale: int = 1) -> Cameras:
    """Reads only the cameras of a capture, as `load_capture` would give them without distortion; no mask is read.

    Args:
      path: the folder, the .json file, or the folder of a COLMAP model. Where a picture does not exist, the file must
        give its size.
      downscale: integer factor by which the pictures are shrunk.

    Returns:
      The cameras sorted by name.

    Raises:
      InputError: naming the file and the field.

    Example:
      >>> load_cameras("captures/fox").viewmats.shape
      (67, 4, 4)
    """
    views, _ = find_views(_source(path, downscale), downscale=downscale, need_pictures=False)
    return _cameras(views)


def _source(path: Path | str, downscale: int) -> Source:
    """What the files of a capture say, whatever kind it is of."""
    if downscale < 1:
        raise InputError(f"downscale must be at least 1, got {downscale}")
    path = Path(path)
    if path.is_file():
        return load_llff(path.parent) if path.name == POSES else load_transforms(path)
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder")
    if find_transforms(path):
        return load_transforms(path)
    if find_models(path):
        return load_colmap(path)
    if (path / POSES).is_file():
        return load_llff(path)
    if not any(path.iterdir()):
        raise InputError(f"{path}: the folder is empty")
    raise InputError(
        f"{path}: holds neither transforms.json nor transforms_train.json, nor a COLMAP model (cameras.bin and "
        f"images.bin, or .txt), nor {POSES}"
    )


def _held_out(path: Path, views: Sequence[View], asked: Sequence[str]) -> np.ndarray:
    if asked:
        names = [f"/{view.frame.name}" for view in views]
        unknown = [name for name in asked if sum(known.endswith(f"/{name}") for known in names) != 1]
        if unknown:
            raise InputError(
                f"{path}: held_out must name one usable image each, got {listed(unknown)}; there are "
                f"{listed([view.frame.name for view in views])}"
            )
        return np.array([any(known.endswith(f"/{name}") for name in asked) for known in names])
    said = [view.frame.held_out for view in views]
    if all(flag is None for flag in said):
        return np.arange(len(views)) % HOLD_OUT_EVERY == 0
    return np.array([bool(flag) for flag in said])


def _any_transparent(views: Sequence[View]) -> bool:
    return any((load_image(view.path)[..., 3] < 255).any() for view in views if view.header.has_alpha)


def _store(views: Sequence[View], alpha: Alpha, background: np.ndarray, transparent: bool, memory: int) -> PictureStore:
    size = canvas_size(views)
    masked = any(view.mask_path is not None or view.size != size for view in views)
    masked |= alpha == "mask" and any(view.header.has_alpha for view in views)
    canvas = Canvas(height=size[1], width=size[0], masked=masked, transparent=transparent)

    def read(index: int) -> Picture:
        view = views[index]
        K = view.frame.camera.intrinsics(view.header.width, view.header.height)
        removed = view.frame.camera.lens if view.lens is None else PINHOLE
        photograph = Photograph(view.path, view.mask_path, K, removed, view.downscale)
        return develop(photograph, canvas, alpha=alpha, background=background)

    return PictureStore(read, canvas, views=len(views), memory=memory)


def _shown(
    views: Sequence[View], store: PictureStore, alpha: Alpha, notes: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """Which views show anything that counts, and the notes with one more about the others."""
    doubtful = [i for i, view in enumerate(views) if view.mask_path or (alpha == "mask" and view.header.has_alpha)]
    masks = Images(store, "mask")
    masks.prefetch(doubtful)
    hidden = [i for i in doubtful if not masks[i].any()]
    if not hidden:
        return np.arange(len(views)), list(notes)
    names = listed([views[i].frame.name for i in hidden])
    said = f"Masks hide {len(hidden)} of {len(views)} images from edge to edge; they are left out: {names}."
    return np.setdiff1d(np.arange(len(views)), hidden), [*notes, said]


def _depths(source: Source, views: Sequence[View]) -> Depths | None:
    """Where files of depths are named, those; else the points that each view is known to show."""
    if any(view.frame.depth is not None for view in views):
        return Depths(len(views), lambda i: _depths_of_map(views[i]))
    if source.points is None or all(view.frame.seen is None for view in views):
        return None
    points = source.points.points

    def of_points(index: int) -> ViewDepths:
        view = views[index]
        seen = points[np.zeros(0, np.int64) if view.frame.seen is None else view.frame.seen]
        width, height = view.size
        return view_depths(seen, view.frame.viewmat, view.K, width=width, height=height, lens=view.lens)

    return Depths(len(views), of_points)


def _depths_of_map(view: View) -> ViewDepths:
    if view.frame.depth is None:
        return no_depths()
    width, height = view.header.width, view.header.height
    pixels = grid_pixels(*view.size)
    sources = pixels * [width / view.size[0], height / view.size[1]]
    if view.lens is None:  # the map is of the picture with its distortion
        camera = view.frame.camera
        sources = source_pixels(sources, camera.intrinsics(width, height), camera.lens, width, height)
    path, unit = view.frame.depth
    depths = map_depths(path, pixels, sources / [width, height], unit=unit)
    if view.lens is None or view.lens.projection == "perspective":
        return depths
    # The map holds depths along the axis, of what is in front; the renderer has distances.
    axis = pixel_rays(depths.pixels, view.K, view.lens)[:, 2]
    front = axis > 0
    return ViewDepths(depths.pixels[front], (depths.depths[front] / axis[front]).astype(np.float32))


def _cameras(views: Sequence[View]) -> Cameras:
    viewmats = np.stack([view.frame.viewmat for view in views]).astype(np.float32)
    Ks = np.stack([view.K for view in views]).astype(np.float32)
    return Cameras(tuple(view.frame.name for view in views), viewmats, Ks, *canvas_size(views), lens=joined_lens(views))
