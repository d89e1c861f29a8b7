// Arguments of the structural similarity of two pictures.
#ifndef JAXSPLAT_OPS_SSIM_H_
#define JAXSPLAT_OPS_SSIM_H_

#include <algorithm>
#include <cstdint>

namespace jaxsplat {

// A pair of pictures [height, width, channels], zero outside, and the separable window [2 radius + 1] of local moments.
// Columns and channels share one axis, so that a shift by a pixel is a shift by `channels` values.
struct SsimImages {
  const float *x, *y;
  int64_t height, width, channels;
  const float* window;
  int64_t radius;
  float c1, c2;

  int64_t row_size() const { return width * channels; }
  // How far the window reaches along a row.
  int64_t reach() const { return radius * channels; }
};

// What each value of the map counts in a sum: one number for all, or [height, width, channels].
struct SsimWeights {
  const float* values;
  bool shared;
};

// Part of a picture: rows, and values of each row.
struct SsimBlock {
  int64_t top, bottom, left, right;

  // As much wider as the window reaches, as far as the picture goes.
  SsimBlock Wider(const SsimImages& s) const {
    return {std::max<int64_t>(top - s.radius, 0), std::min(bottom + s.radius, s.height),
            std::max<int64_t>(left - s.reach(), 0), std::min(right + s.reach(), s.row_size())};
  }
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_SSIM_H_
