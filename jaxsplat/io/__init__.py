"""Files in and out."""

from jaxsplat.io.files import InputError as InputError
from jaxsplat.io.files import atomic_write as atomic_write
from jaxsplat.io.files import load_json as load_json
from jaxsplat.io.files import save_json as save_json
from jaxsplat.io.images import load_image as load_image
from jaxsplat.io.images import save_image as save_image
from jaxsplat.io.meshes import Mesh as Mesh
from jaxsplat.io.meshes import load_mesh as load_mesh
from jaxsplat.io.ply import PointCloud as PointCloud
from jaxsplat.io.ply import load_ply as load_ply
from jaxsplat.io.ply import load_points as load_points
from jaxsplat.io.ply import save_ply as save_ply
from jaxsplat.io.ply import save_points as save_points
from jaxsplat.io.splats import SplatFile as SplatFile
from jaxsplat.io.splats import load_splats as load_splats
from jaxsplat.io.splats import read_splats as read_splats
from jaxsplat.io.splats import save_splats as save_splats
