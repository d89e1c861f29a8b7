"""Camera models, one a file with the same functions: `project`, `jacobian`, `ray`, `sees` and `depth`.

They take and return separate components, because XLA fuses those into one loop. Camera axes: +x right, +y down, +z
forward; pixel (x, y) has its centre at (x + .5, y + .5).
"""

from jaxsplat.cameras.build import intrinsics_from_fov as intrinsics_from_fov
from jaxsplat.cameras.build import look_at as look_at
from jaxsplat.cameras.intrinsics import UNIT as UNIT
from jaxsplat.cameras.intrinsics import Intrinsics as Intrinsics
from jaxsplat.cameras.intrinsics import split as split
from jaxsplat.cameras.lens import LENS_FIELDS as LENS_FIELDS
from jaxsplat.cameras.lens import Lens as Lens
from jaxsplat.cameras.lens import opencv_lens as opencv_lens
from jaxsplat.cameras.lens import per_camera_lens as per_camera_lens
from jaxsplat.cameras.models import MODELS as MODELS
from jaxsplat.cameras.models import AnyCameraModel as AnyCameraModel
from jaxsplat.cameras.models import Model as Model
from jaxsplat.cameras.models import find_model as find_model
from jaxsplat.cameras.pose import camera_centres as camera_centres
from jaxsplat.cameras.rays import camera_rays as camera_rays
from jaxsplat.cameras.shutter import Shutter as Shutter
