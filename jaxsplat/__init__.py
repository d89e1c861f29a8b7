"""jaxsplat: differentiable Gaussian splatting for JAX.

Pure functions for every stage (`project_gaussians`, `spherical_harmonics`, `intersect_tiles`,
`rasterize_gaussians_3d`) and for the whole pipeline (`rasterization`).
"""

from jaxsplat._linalg import CovarPreci as CovarPreci
from jaxsplat._linalg import quat_scale_to_covar_preci as quat_scale_to_covar_preci
from jaxsplat.cameras import Lens as Lens
from jaxsplat.cameras import Shutter as Shutter
from jaxsplat.cameras import camera_rays as camera_rays
from jaxsplat.cameras import intrinsics_from_fov as intrinsics_from_fov
from jaxsplat.cameras import look_at as look_at
from jaxsplat.cameras import opencv_lens as opencv_lens
from jaxsplat.projection import Unscented as Unscented
from jaxsplat.projection import project_gaussians as project_gaussians
from jaxsplat.projection import project_outlines as project_outlines
from jaxsplat.projection import project_unscented as project_unscented
from jaxsplat.projection.meshes import ClippedFaces as ClippedFaces
from jaxsplat.projection.meshes import clip_faces as clip_faces
from jaxsplat.projection.meshes import project_meshes as project_meshes
from jaxsplat.projection.meshes import unclip_fragments as unclip_fragments
from jaxsplat.rasterize.gaussians_3d import Rasterized as Rasterized
from jaxsplat.rasterize.gaussians_3d import rasterize_gaussians_3d as rasterize_gaussians_3d
from jaxsplat.rasterize.gaussians_world import RasterizedWorld as RasterizedWorld
from jaxsplat.rasterize.gaussians_world import rasterize_gaussians_world as rasterize_gaussians_world
from jaxsplat.rasterize.meshes import rasterize_meshes as rasterize_meshes
from jaxsplat.rasterize.silhouettes import rasterize_silhouettes as rasterize_silhouettes
from jaxsplat.rendering import rasterization as rasterization
from jaxsplat.rendering_meshes import render_meshes as render_meshes
from jaxsplat.sh import num_sh_coeffs as num_sh_coeffs
from jaxsplat.sh import rgb_to_sh as rgb_to_sh
from jaxsplat.sh import sh_to_rgb as sh_to_rgb
from jaxsplat.sh import spherical_harmonics as spherical_harmonics
from jaxsplat.shading import PointLight as PointLight
from jaxsplat.shading import blend_hard as blend_hard
from jaxsplat.shading import blend_softmax as blend_softmax
from jaxsplat.shading import face_normals as face_normals
from jaxsplat.shading import interpolate_vertex_attributes as interpolate_vertex_attributes
from jaxsplat.shading import light_points as light_points
from jaxsplat.shading import sample_texture as sample_texture
from jaxsplat.shading import soft_silhouette as soft_silhouette
from jaxsplat.shading import texture_levels as texture_levels
from jaxsplat.shading import vertex_normals as vertex_normals
from jaxsplat.tiles import intersect_tiles as intersect_tiles
from jaxsplat.types import Blend as Blend
from jaxsplat.types import Fragments as Fragments
from jaxsplat.types import MeshBlend as MeshBlend
from jaxsplat.types import MeshOutput as MeshOutput
from jaxsplat.types import Projected as Projected
from jaxsplat.types import RenderInfo as RenderInfo
from jaxsplat.types import RenderOutput as RenderOutput
from jaxsplat.types import ScreenProbe as ScreenProbe
from jaxsplat.types import SHCoeffs as SHCoeffs
from jaxsplat.types import Splats as Splats
from jaxsplat.types import TileIntersections as TileIntersections
