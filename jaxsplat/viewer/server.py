"""The viewer: a web page (viser) that sends its camera and shows the pictures that are rendered here for it."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import viser
import viser.transforms

from jaxsplat import _constants
from jaxsplat.data.capture import Cameras
from jaxsplat.io.arrays import drawable, to_rows
from jaxsplat.io.images import to_uint8
from jaxsplat.types import Splats
from jaxsplat.viewer.frame import MODES, Look, Up, View, frame_size, make_frame_renderer

_STILL_AFTER = 0.2
"""Seconds after its last movement that a camera counts as still."""

_MOVING_SHRINK = 2
"""How much smaller the pictures are while the camera moves."""

_FOV = math.radians(50.0)
_ANYWHERE = "(free)"
_FRUSTUM, _FRUSTUM_COLOR = 0.06, (240, 170, 40)
"""Length of a camera's pyramid, in units of the cameras' distance from the middle of the scene, and its colour."""

_QUALITY = {True: 70, False: 92}


_AXES = {f"{sign}{axis}": float(f"{sign}1") * np.eye(3)[k] for sign in "+-" for k, axis in enumerate("xyz")}


class _Wanted(enum.Enum):
    NOTHING = enum.auto()
    SMALL = enum.auto()
    FULL = enum.auto()


@dataclasses.dataclass
class _Client:
    """A page that is open, and what it waits for."""

    handle: viser.ClientHandle
    wanted: _Wanted = _Wanted.SMALL
    moved: float = 0.0


class Viewer:
    """Serves a page that shows a scene. One thread renders for all pages, a small picture while a camera moves.

    Args:
      splats: the scene, in world units; it can be replaced by `update`.
      cameras: of a capture, to choose from; the first is where the page begins.
      up: the axis that points up; by default that of the cameras, or -y without any, as in most files.
      host: address to listen on. Other machines can reach it only where this is not the machine's own.
      port: to listen on; the next free one is taken where it is in use.
      background: colour in 0..1 to begin with.
      antialiased: as the splats were trained.
      can_pause: show a switch for `wait_while_paused`.
      largest: longest side of a picture, in pixels.

    Raises:
      OSError: where no port is free.

    Example:
      >>> with Viewer(load_splats("scene.ply")) as viewer:
      ...     print(viewer.url)
      ...     time.sleep(3600)
    """

    def __init__(
        self,
        splats: Splats,
        *,
        cameras: Cameras | None = None,
        up: Up | None = None,
        host: str = "127.0.0.1",
        port: int = 8080,
        background: tuple[float, float, float] = (0.0, 0.0, 0.0),
        antialiased: bool = False,
        can_pause: bool = False,
        largest: int = 1280,
    ) -> None:
        self._splats, self._cameras, self._largest = splats, cameras, largest
        self._render = make_frame_renderer(antialiased=antialiased)
        self._look = Look(background=background)
        self._clients: dict[int, _Client] = {}
        self._changed = threading.Condition()
        self._closed = self._paused = False
        self._frustums: list[viser.CameraFrustumHandle] = []
        with _quiet():
            self._server = viser.ViserServer(host=host, port=port, label="jaxsplat", verbose=False)
        self.url = f"http://{host}:{self._server.get_port()}"
        self._set_first_camera(up)
        self._add_controls(can_pause)
        self._server.on_client_connect(self._connected)
        self._server.on_client_disconnect(self._disconnected)
        self._thread = threading.Thread(target=self._work, name="jaxsplat-viewer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, splats: Splats, *, caption: str = "") -> None:
        """Shows another scene, or a later state of the same one; its arrays must stay as they are."""
        with self._changed:
            self._splats = splats
            self._refresh()
        self._status.content = caption

    def wait_while_paused(self, stopped: Callable[[], bool]) -> None:
        """Returns at once, or when the pause ends, the viewer is closed, or `stopped()` is true."""
        with self._changed:
            while self._paused and not self._closed and not stopped():
                self._changed.wait(0.1)

    def close(self) -> None:
        """Ends the pages and the thread; a pause ends too."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        with _quiet():
            self._server.stop()

    def _set_first_camera(self, up: Up | None) -> None:
        """The first of the capture; without one, the middle of the scene from three times its radius."""
        rows = to_rows("Viewer", self._splats)
        means = rows.means[drawable(rows)].astype(np.float64)
        if not len(means):
            means = np.zeros((1, 3))
        self._middle = np.median(means, 0)
        view = self._server.initial_camera
        upward = _AXES[up or "-y"]
        if self._cameras is not None:
            pose = np.linalg.inv(self._cameras.viewmats[0].astype(np.float64))
            if up is None:
                upward = -self._cameras.viewmats[:, 1, :3].astype(np.float64).mean(0)
            view.fov = self._fov(0)
            view.position = pose[:3, 3]
            view.look_at = pose[:3, 3] + _radius(means, pose[:3, 3]) * pose[:3, 2]
        else:
            aside = np.roll(np.abs(upward), 1)
            view.fov = _FOV
            view.position = self._middle + 3.0 * _radius(means, self._middle) * (0.3 * upward - aside)
            view.look_at = self._middle
        view.up = upward
        self._server.scene.set_up_direction((float(upward[0]), float(upward[1]), float(upward[2])))

    def _fov(self, index: int) -> float:
        assert self._cameras is not None
        return 2.0 * math.atan(self._cameras.height / (2.0 * float(self._cameras.Ks[index, 1, 1])))

    def _add_controls(self, can_pause: bool) -> None:
        gui = self._server.gui
        gui.configure_theme(show_share_button=False)  # it would send the scene through another machine
        self._status = gui.add_markdown("")
        mode = gui.add_dropdown("Show", MODES, initial_value=self._look.mode)
        near = gui.add_number("Near", _constants.NEAR, min=0.0)
        far = gui.add_number("Far", _constants.FAR, min=0.0)
        red, green, blue = (int(v) for v in to_uint8(np.asarray(self._look.background)))
        background = gui.add_rgb("Background", (red, green, blue))

        def changed(_: Any) -> None:
            r, g, b = (v / 255.0 for v in background.value)
            with self._changed:
                self._look = Look(mode.value, float(near.value), float(far.value), (r, g, b))
                self._refresh()

        for control in (mode, near, far, background):
            control.on_update(changed)
        if self._cameras is not None:
            camera = gui.add_dropdown("Camera", [_ANYWHERE, *self._cameras.names])
            camera.on_update(lambda event: self._go_to(event.client, camera.value))
            shown = gui.add_checkbox("Show cameras", False)
            shown.on_update(lambda _: self._show_frustums(shown.value))
        if can_pause:
            pause = gui.add_checkbox("Pause training", False)

            def switched(_: Any) -> None:
                with self._changed:
                    self._paused = pause.value
                    self._changed.notify_all()

            pause.on_update(switched)

    def _go_to(self, client: viser.ClientHandle | None, name: str) -> None:
        if client is None or self._cameras is None or name == _ANYWHERE:
            return
        index = self._cameras.names.index(name)
        with client.atomic():
            client.camera.fov = self._fov(index)
            client.camera.wxyz, client.camera.position = self._pose(index)

    def _show_frustums(self, visible: bool) -> None:
        """Shows where the cameras of the capture stand, or hides them; a click on one goes there."""
        assert self._cameras is not None
        if not self._frustums:  # made when first asked for: there may be thousands
            places = np.stack([self._pose(index)[1] for index in range(len(self._cameras.names))])
            length = _FRUSTUM * _radius(places, self._middle)
            aspect = self._cameras.width / self._cameras.height
            for index, name in enumerate(self._cameras.names):
                wxyz, position = self._pose(index)
                # The base is at the camera's place: whoever looks from there has the pyramid behind, out of the way.
                position = position - 1.01 * length * self._cameras.viewmats[index, 2, :3]
                scale = length * math.cbrt(math.tan(self._fov(index) / 2.0) ** 2 * aspect / 3.0)
                frustum = self._server.scene.add_camera_frustum(
                    f"/cameras/{index}", fov=self._fov(index), aspect=aspect, scale=scale, color=_FRUSTUM_COLOR,
                    wxyz=wxyz, position=position,
                )  # fmt: skip
                frustum.on_click(lambda event, name=name: self._go_to(event.client, name))
                self._frustums.append(frustum)
        for frustum in self._frustums:
            frustum.visible = visible

    def _pose(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Rotation wxyz from a camera of the capture to the world, and its place."""
        assert self._cameras is not None
        pose = np.linalg.inv(self._cameras.viewmats[index].astype(np.float64))
        return viser.transforms.SO3.from_matrix(pose[:3, :3]).wxyz, pose[:3, 3]

    def _connected(self, handle: viser.ClientHandle) -> None:
        with self._changed:
            self._clients[handle.client_id] = _Client(handle)
            self._changed.notify_all()
        handle.camera.on_update(lambda _: self._moved(handle.client_id))

    def _moved(self, client_id: int) -> None:
        with self._changed:
            client = self._clients.get(client_id)
            if client is not None:
                client.wanted, client.moved = _Wanted.SMALL, time.monotonic()
                self._changed.notify_all()

    def _disconnected(self, handle: viser.ClientHandle) -> None:
        with self._changed:
            self._clients.pop(handle.client_id, None)

    def _refresh(self) -> None:
        for client in self._clients.values():
            if client.wanted is _Wanted.NOTHING:
                client.wanted = _Wanted.FULL
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                client = self._next()
                while client is None and not self._closed:
                    self._changed.wait(_STILL_AFTER / 4 if self._waiting() else None)
                    client = self._next()
                if client is None or self._closed:
                    return
                self._clients[client.handle.client_id] = self._clients.pop(client.handle.client_id)  # others come first
                small = client.wanted is _Wanted.SMALL
                client.wanted = _Wanted.FULL if small else _Wanted.NOTHING
                splats, look = self._splats, self._look
            self._send(client.handle, splats, look, small)

    def _waiting(self) -> bool:
        return any(client.wanted is not _Wanted.NOTHING for client in self._clients.values())

    def _next(self) -> _Client | None:
        """The page to draw for: first those that move, then those that have become still."""
        still = time.monotonic() - _STILL_AFTER
        for client in self._clients.values():
            if client.wanted is _Wanted.SMALL:
                return client
        for client in self._clients.values():
            if client.wanted is _Wanted.FULL and client.moved <= still:
                return client
        return None

    def _send(self, handle: viser.ClientHandle, splats: Splats, look: Look, small: bool) -> None:
        camera = handle.camera
        turn = viser.transforms.SO3(np.asarray(camera.wxyz))
        pose = viser.transforms.SE3.from_rotation_and_translation(turn, np.asarray(camera.position))
        sides = (max(int(camera.image_width), 1), max(int(camera.image_height), 1))
        view = View(pose.inverse().as_matrix(), float(camera.fov), sides[0] / sides[1])
        largest = self._largest // (_MOVING_SHRINK if small else 1)
        image = self._render(splats, view, look, *frame_size(*sides, largest))
        if handle.client_id in self._server.get_clients():  # it may have left meanwhile
            handle.scene.set_background_image(image, format="jpeg", jpeg_quality=_QUALITY[small])


def _radius(points: np.ndarray, center: np.ndarray) -> float:
    """Median distance of points from a center, and never zero."""
    return max(float(np.median(np.linalg.norm(points - center, axis=1))), 1e-6)


def _quiet() -> contextlib.redirect_stdout[io.StringIO]:
    """The server prints a banner when it starts and a line when it stops."""
    return contextlib.redirect_stdout(io.StringIO())
