// Arguments of the rasterizer of meshes: plain pointers, one image at a time.
#ifndef JAXSPLAT_OPS_RASTERIZE_MESHES_H_
#define JAXSPLAT_OPS_RASTERIZE_MESHES_H_

#include <cstdint>
#include <stdexcept>
#include <string>

namespace jaxsplat {

struct MeshRule {
  int64_t faces_per_pixel;
  bool perspective_correct, clip_barycentric_coords, cull_backfaces;
};

// The faces of one image's mesh.
struct MeshView {
  const float* face_verts;  // [count, 3, 3] x, y on the screen and depth
  int64_t count;
  int64_t first;             // the index of face 0, in what goes out and in neighbors
  const int32_t* neighbors;  // [count] other half of a clipped face or -1; null: none
  float blur_radius, near_plane, far_plane;
  const float* xs;  // [W] pixel centres, evenly spaced, ascending or descending
  const float* ys;  // [H]
};

// [H, W, K], -1 where there is no face.
struct FragmentArrays {
  int32_t* faces;
  float* depths;
  float* bary;   // [H, W, K, 3]
  float* dists;  // signed
};

// Known faces at the pixels of any number of images, and the cotangents of what they say there.
struct SlotsJob {
  MeshRule rule;
  const float* face_verts;      // [F, 3, 3]
  int64_t face_count;           // F
  int64_t rows, width, height;  // rows of all images
  const int32_t* faces;         // [rows, W, K]
  const float* dists;           // [rows, W, K], for their sign
  const float *xs, *ys;         // [W], [H]
  const float *v_depths, *v_bary, *v_dists;
};

// These throw std::invalid_argument. The kernels index the values of corners with 32 bits.
inline void CheckFaces(int64_t faces) {
  if (faces <= INT32_MAX / 9) return;
  throw std::invalid_argument("faces: at most " + std::to_string(INT32_MAX / 9) + " at a time, got " +
                              std::to_string(faces));
}

// The faces [begin, begin + size) of one image, of the `count` given.
inline void CheckMesh(int64_t begin, int64_t size, int64_t count, float blur_radius) {
  if (begin < 0 || size < 0 || begin + size > count) {
    throw std::invalid_argument("first_faces and face_counts: faces [" + std::to_string(begin) + ", " +
                                std::to_string(begin + size) + ") are not among the " + std::to_string(count) +
                                " given");
  }
  if (!(blur_radius >= 0)) {
    throw std::invalid_argument("blur_radius must be at least 0, got " + std::to_string(blur_radius));
  }
}

inline void CheckSigma(float sigma) {
  if (!(sigma > 0)) throw std::invalid_argument("sigma must be above 0, got " + std::to_string(sigma));
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_RASTERIZE_MESHES_H_
