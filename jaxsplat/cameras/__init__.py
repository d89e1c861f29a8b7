"""Camera models, one a file with the same three functions: `project`, `jacobian` and `ray`.

They take and return separate components, because XLA fuses those into one loop. Camera axes: +x right, +y down, +z
forward; pixel (x, y) has its centre at (x + .5, y + .5).
"""

from jaxsplat.cameras.intrinsics import Intrinsics as Intrinsics
from jaxsplat.cameras.intrinsics import split as split
from jaxsplat.cameras.pose import camera_centres as camera_centres
from jaxsplat.cameras.rays import MODELS as MODELS
from jaxsplat.cameras.rays import camera_rays as camera_rays
