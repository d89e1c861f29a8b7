// Structural similarity and its gradient over a block of a picture that is narrow enough for the first-level cache. The
// separable sums run row by row, with a ring of as many rows as the window covers between the two directions. Included
// by one source file per instruction set.
#include <algorithm>
#include <cstdint>

#include "core/simd.h"
#include "cpu/scratch.h"
#include "math/ssim.h"
#include "ops/ssim.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

inline int64_t WholeVectors(int64_t values) { return (values + kLanes - 1) / kLanes * kLanes; }

// The last rows of some maps over a range of a row's values.
template <int kMaps>
class SsimRing {
 public:
  SsimRing(Scratch& scratch, const SsimImages& s, int64_t left, int64_t right)
      : left_(left),
        pitch_(kMaps * WholeVectors(right - left) + kLanes),
        rows_(2 * s.radius + 1),
        values_(scratch.Take<float>(pitch_ * rows_)),
        column_(scratch.Take<Tap>(rows_)) {}

  // The vectors of all maps at value i of row y, one after another.
  void Store(int64_t y, int64_t i, const Vec* maps) {
    for (int m = 0; m < kMaps; ++m) maps[m].Store(Row(y) + kMaps * (i - left_) + m * kLanes);
  }
  // Chooses the row around which columns are summed.
  void Centre(const SsimImages& s, int64_t y) {
    const int64_t top = std::max<int64_t>(y - s.radius, 0), bottom = std::min(y + s.radius + 1, s.height);
    taps_ = bottom - top;
    for (int64_t tap = 0; tap < taps_; ++tap) {
      column_[tap] = {Row(top + tap), s.window[top + tap - y + s.radius]};
    }
  }
  // Window sums along the column through value i.
  JAXSPLAT_INLINE void SumColumn(int64_t i, Vec* sums) const {
    for (int m = 0; m < kMaps; ++m) sums[m] = Vec(0.0f);
    for (const Tap *tap = column_, *end = column_ + taps_; tap != end; ++tap) {
      const float* p = tap->row + kMaps * (i - left_);
      for (int m = 0; m < kMaps; ++m) sums[m] = Fma(Vec(tap->weight), Vec::Load(p + m * kLanes), sums[m]);
    }
  }

 private:
  struct Tap {
    const float* row;
    float weight;
  };
  float* Row(int64_t y) { return values_ + y % rows_ * pitch_; }

  // An odd number of vectors: rows a power of two apart would share the same few sets of the cache.
  int64_t left_, pitch_, rows_, taps_ = 0;
  float* values_;
  Tap* column_;
};

// Calls f(i, n) for the vectors of a range: n of the values from i.
template <class F>
JAXSPLAT_INLINE void ForVectors(int64_t left, int64_t right, const F& f) {
  for (int64_t i = left; i < right; i += kLanes) f(i, std::min<int64_t>(kLanes, right - i));
}

inline constexpr int64_t kRowsAhead = 4;

// Copies a range of a row that may begin and end outside the picture, where there are zeros.
void CopyRow(const SsimImages& s, const float* image, int64_t y, int64_t left, int64_t right, float* out) {
  const int64_t size = s.row_size(), from = std::max<int64_t>(left, 0), to = std::min(right, size);
  std::fill(out, out + (from - left), 0.0f);
  // Rows of a narrow block are too far apart for the hardware to foresee.
  const float* ahead = image + std::min(y + kRowsAhead, s.height - 1) * size;
  for (int64_t i = from; i < to; i += 16) __builtin_prefetch(ahead + i);
  std::copy(image + y * size + from, image + y * size + to, out + (from - left));
  std::fill(out + (to - left), out + (right - left), 0.0f);
}

// The moments of a block: summed along rows as they are asked for, then along columns.
class MomentSums {
 public:
  MomentSums(Scratch& scratch, const SsimImages& s, const SsimBlock& block)
      : s_(s),
        block_(block),
        ring_(scratch, s, block.left, block.right),
        next_(block.Wider(s).top),
        size_(WholeVectors(block.right - block.left) + 2 * s.reach()),
        rows_(scratch.Take<float>(2 * size_)) {}

  // Goes to a row; rows must come in order.
  void Prepare(int64_t y) {
    for (; next_ < std::min(y + s_.radius + 1, s_.height); ++next_) SumRow(next_);
    ring_.Centre(s_, y);
  }
  JAXSPLAT_INLINE SsimMoments<Vec> At(int64_t i) const {
    Vec sums[kMoments];
    ring_.SumColumn(i, sums);
    return {sums[0], sums[1], sums[2], sums[3]};
  }

 private:
  static constexpr int kMoments = 4;

  void SumRow(int64_t y) {
    const int64_t left = block_.left - s_.reach(), right = left + size_;
    float *const x_row = rows_, *const y_row = x_row + size_;
    CopyRow(s_, s_.x, y, left, right, x_row);
    CopyRow(s_, s_.y, y, left, right, y_row);
    ForVectors(block_.left, block_.right, [&](int64_t i, int64_t) {
      Vec mean_x(0.0f), mean_y(0.0f), xx(0.0f), yy(0.0f), products(0.0f);
      const float *px = x_row + (i - block_.left), *py = y_row + (i - block_.left);
      const int64_t channels = s_.channels;
      for (const float *w = s_.window, *end = w + 2 * s_.radius + 1; w != end; ++w, px += channels, py += channels) {
        const Vec a = InRegister(Vec::Load(px)), b = InRegister(Vec::Load(py));
        const Vec weighted_a = Vec(*w) * a, weighted_b = Vec(*w) * b;
        mean_x = mean_x + weighted_a;
        mean_y = mean_y + weighted_b;
        xx = Fma(weighted_a, a, xx);
        yy = Fma(weighted_b, b, yy);
        products = Fma(weighted_a, b, products);
      }
      const Vec all[kMoments] = {mean_x, mean_y, xx + yy, products};
      ring_.Store(y, i, all);
    });
  }

  const SsimImages& s_;
  const SsimBlock block_;
  SsimRing<kMoments> ring_;
  int64_t next_, size_;
  float* rows_;
};

// Stores the part of a vector at value i that lies in the block.
JAXSPLAT_INLINE void StoreInside(const SsimBlock& block, const Vec& a, int64_t i, int64_t n, float* row) {
  if (i >= block.left && i + n <= block.right) return StorePart(a, row + i, n);
  alignas(64) float lanes[kLanes];
  a.Store(lanes);
  const int64_t from = std::max(i, block.left), to = std::min(i + n, block.right);
  for (int64_t k = from; k < to; ++k) row[k] = lanes[k - i];
}

void SsimMap(const SsimImages& s, const SsimBlock& block, float* map) {
  const Vec c1(s.c1), c2(s.c2);
  Scratch scratch;
  MomentSums moments(scratch, s, block);
  for (int64_t y = block.top; y < block.bottom; ++y) {
    moments.Prepare(y);
    ForVectors(block.left, block.right, [&](int64_t i, int64_t n) {
      StorePart(Similarity(TermsOf(moments.At(i), c1, c2)), map + y * s.row_size() + i, n);
    });
  }
}

// The window is symmetric, so its transpose is itself.
void SsimGradient(const SsimImages& s, const SsimWeights& weights, const SsimBlock& block, float* map, float* v_x) {
  const Vec c1(s.c1), c2(s.c2);
  const SsimBlock wide = block.Wider(s);
  Scratch scratch;
  MomentSums moments(scratch, s, wide);
  SsimRing<3> gradients(scratch, s, wide.left, wide.right);
  // Column sums of one row, with zeros on both sides.
  const int64_t pitch = WholeVectors(block.right - block.left + 2 * s.reach()) + kLanes;
  auto* const sums = scratch.Take<float>(3 * pitch);
  std::fill(sums, sums + 3 * pitch, 0.0f);
  const int64_t shift = s.reach() - block.left;
  int64_t filled = wide.top;
  for (int64_t y = block.top; y < block.bottom; ++y) {
    for (; filled < std::min(y + s.radius + 1, wide.bottom); ++filled) {
      moments.Prepare(filled);
      const bool inside = filled >= block.top && filled < block.bottom;
      ForVectors(wide.left, wide.right, [&](int64_t i, int64_t n) {
        const int64_t at = filled * s.row_size() + i;
        const SsimMoments<Vec> m = moments.At(i);
        const SsimTerms<Vec> terms = TermsOf(m, c1, c2);
        if (inside) StoreInside(block, Similarity(terms), i, n, map + filled * s.row_size());
        const Vec v = weights.shared ? Vec(*weights.values) : LoadPart(weights.values + at, n);
        const SsimMomentGradient<Vec> g = MomentGradient(m, terms, v);
        const Vec all[3] = {g.x, g.two_xx, g.xy};
        gradients.Store(filled, i, all);
      });
    }
    gradients.Centre(s, y);
    ForVectors(wide.left, wide.right, [&](int64_t i, int64_t n) {
      Vec columns[3];
      gradients.SumColumn(i, columns);
      for (int m = 0; m < 3; ++m) StorePart(columns[m], sums + m * pitch + shift + i, n);
    });
    ForVectors(block.left, block.right, [&](int64_t i, int64_t n) {
      Vec g[3] = {Vec(0.0f), Vec(0.0f), Vec(0.0f)};
      const float* p = sums + i - block.left;
      const int64_t channels = s.channels;
      for (const float *w = s.window, *end = w + 2 * s.radius + 1; w != end; ++w, p += channels) {
        for (int m = 0; m < 3; ++m) g[m] = Fma(Vec(*w), Vec::Load(p + m * pitch), g[m]);
      }
      const int64_t at = y * s.row_size() + i;
      StorePart(Fma(LoadPart(s.y + at, n), g[2], Fma(LoadPart(s.x + at, n), g[1], g[0])), v_x + at, n);
    });
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
