"""Captures: photographs with known cameras."""

from jaxsplat.data.capture import Cameras as Cameras
from jaxsplat.data.capture import Capture as Capture
from jaxsplat.data.capture import load_cameras as load_cameras
from jaxsplat.data.capture import load_capture as load_capture
from jaxsplat.data.demo import make_demo_capture as make_demo_capture
from jaxsplat.data.depths import ViewDepths as ViewDepths
from jaxsplat.data.initial import random_points as random_points
from jaxsplat.data.normalize import Normalization as Normalization
from jaxsplat.data.normalize import normalization as normalization
from jaxsplat.data.pictures import Images as Images
