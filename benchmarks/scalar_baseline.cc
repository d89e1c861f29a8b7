// The obvious Gaussian-splatting rasterizer for a CPU, kept as the yardstick of the benchmarks: a direct transcription
// of the field's CUDA kernels. Tiles of the image in parallel, one pixel at a time, boxes from one radius per splat,
// expf from libm, atomic gradients. Deliberately plain: do not speed it up.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// The command line of the compiler defines the macros, from the library's own constants.
constexpr int kTile = TILE_SIZE;
constexpr int kChannels = 3;
constexpr float kAlphaMin = ALPHA_MIN;
constexpr float kAlphaMax = ALPHA_MAX;
constexpr float kTransmittanceMin = TRANSMITTANCE_MIN;

int TilesAlong(int64_t size) { return static_cast<int>((size + kTile - 1) / kTile); }

struct TileRange {
  int x0, x1, y0, y1;
};

// The tiles that the box of a splat covers.
TileRange TilesOf(const float* mean2d, const int32_t* radii, int tiles_x, int tiles_y) {
  const float x = mean2d[0] / kTile, rx = static_cast<float>(radii[0]) / kTile;
  const float y = mean2d[1] / kTile, ry = static_cast<float>(radii[1]) / kTile;
  const auto clamp = [](float value, int limit) { return std::min(std::max(static_cast<int>(value), 0), limit); };
  return {clamp(std::floor(x - rx), tiles_x), clamp(std::ceil(x + rx), tiles_x), clamp(std::floor(y - ry), tiles_y),
          clamp(std::ceil(y + ry), tiles_y)};
}

// Sorts pairs by the lowest `bits` bits of their keys, 8 bits at a time.
void RadixSort(std::vector<uint64_t>& keys, std::vector<int32_t>& values, int bits) {
  std::vector<uint64_t> other_keys(keys.size());
  std::vector<int32_t> other_values(values.size());
  for (int shift = 0; shift < bits; shift += 8) {
    size_t starts[257] = {};
    for (uint64_t key : keys) ++starts[((key >> shift) & 255) + 1];
    for (int digit = 0; digit < 256; ++digit) starts[digit + 1] += starts[digit];
    for (size_t i = 0; i < keys.size(); ++i) {
      const size_t to = starts[(keys[i] >> shift) & 255]++;
      other_keys[to] = keys[i];
      other_values[to] = values[i];
    }
    keys.swap(other_keys);
    values.swap(other_values);
  }
}

template <bool kAtomic>
void Add(float* target, float value) {
  if constexpr (kAtomic) {
#pragma omp atomic
    *target += value;
  } else {
    *target += value;
  }
}

// What the kernels read of a scene; all pointers are to arrays of n rows.
struct Splats {
  const float* means2d;    // [n, 2]
  const float* conics;     // [n, 3]
  const float* colors;     // [n, 3]
  const float* opacities;  // [n]
};

struct Gradients {
  float* means2d;
  float* conics;
  float* colors;
  float* opacities;
};

// One splat at one pixel.
struct Evaluated {
  float dx, dy, falloff, alpha;
  bool counts;
};

Evaluated Evaluate(const Splats& splats, int32_t id, float px, float py) {
  const float* conic = splats.conics + 3 * id;
  const float dx = splats.means2d[2 * id] - px, dy = splats.means2d[2 * id + 1] - py;
  const float sigma = 0.5f * (conic[0] * dx * dx + conic[2] * dy * dy) + conic[1] * dx * dy;
  const float falloff = expf(-sigma);
  const float alpha = std::min(kAlphaMax, splats.opacities[id] * falloff);
  return {dx, dy, falloff, alpha, sigma >= 0.0f && alpha >= kAlphaMin};
}

// Gradients of one pixel, from its last splat to its first.
template <bool kAtomic>
void PixelBackward(const Splats& splats, const Gradients& out, const int32_t* ids, int begin, int last, float px,
                   float py, float final_transmittance, const float* background, const float* v_color,
                   float v_alpha_out) {
  float transmittance = final_transmittance;
  float behind[kChannels] = {};
  float v_background = 0.0f;
  for (int c = 0; c < kChannels; ++c) v_background += background[c] * v_color[c];
  for (int i = last; i >= begin; --i) {
    const int32_t id = ids[i];
    const Evaluated e = Evaluate(splats, id, px, py);
    if (!e.counts) continue;
    const float inverse = 1.0f / (1.0f - e.alpha);
    transmittance *= inverse;
    const float weight = e.alpha * transmittance;
    const float* color = splats.colors + kChannels * id;
    float v_alpha = final_transmittance * inverse * (v_alpha_out - v_background);
    for (int c = 0; c < kChannels; ++c) {
      v_alpha += (color[c] * transmittance - behind[c] * inverse) * v_color[c];
      behind[c] += color[c] * weight;
      Add<kAtomic>(out.colors + kChannels * id + c, weight * v_color[c]);
    }
    if (splats.opacities[id] * e.falloff > kAlphaMax) continue;
    const float v_sigma = -splats.opacities[id] * e.falloff * v_alpha;
    const float* conic = splats.conics + 3 * id;
    Add<kAtomic>(out.conics + 3 * id, 0.5f * v_sigma * e.dx * e.dx);
    Add<kAtomic>(out.conics + 3 * id + 1, v_sigma * e.dx * e.dy);
    Add<kAtomic>(out.conics + 3 * id + 2, 0.5f * v_sigma * e.dy * e.dy);
    Add<kAtomic>(out.means2d + 2 * id, v_sigma * (conic[0] * e.dx + conic[1] * e.dy));
    Add<kAtomic>(out.means2d + 2 * id + 1, v_sigma * (conic[1] * e.dx + conic[2] * e.dy));
    Add<kAtomic>(out.opacities + id, e.falloff * v_alpha);
  }
}

template <bool kAtomic>
void Backward(const Splats& splats, const Gradients& out, const int32_t* ids, const int32_t* tile_offsets, int width,
              int height, const float* background, const float* transmittances, const int32_t* last_positions,
              const float* v_colors, const float* v_alphas, int threads) {
  const int tiles_x = TilesAlong(width), tiles_y = TilesAlong(height);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int tile = 0; tile < tiles_x * tiles_y; ++tile) {
    const int x0 = tile % tiles_x * kTile, y0 = tile / tiles_x * kTile;
    for (int y = y0; y < std::min(y0 + kTile, height); ++y) {
      for (int x = x0; x < std::min(x0 + kTile, width); ++x) {
        const int64_t pixel = static_cast<int64_t>(y) * width + x;
        PixelBackward<kAtomic>(splats, out, ids, tile_offsets[tile], last_positions[pixel], x + 0.5f, y + 0.5f,
                               transmittances[pixel], background, v_colors + kChannels * pixel, v_alphas[pixel]);
      }
    }
  }
}

}  // namespace

extern "C" {  // every integer is passed with 64 bits, so that the caller need not know which width is meant

// Lists the splats of every tile, nearest first. Returns the number of intersections; writes nothing if it exceeds the
// capacity.
int64_t baseline_intersect(int64_t n, const float* means2d, const int32_t* radii, const float* depths, int64_t width,
                           int64_t height, int64_t threads, int64_t capacity, int32_t* ids, int32_t* tile_offsets) {
  const int tiles_x = TilesAlong(width), tiles_y = TilesAlong(height);
  std::vector<int64_t> ends(n);
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < n; ++i) {
    const TileRange r = TilesOf(means2d + 2 * i, radii + 2 * i, tiles_x, tiles_y);
    ends[i] = radii[2 * i] > 0 ? static_cast<int64_t>(r.x1 - r.x0) * (r.y1 - r.y0) : 0;
  }
  for (int64_t i = 1; i < n; ++i) ends[i] += ends[i - 1];
  const int64_t count = n > 0 ? ends[n - 1] : 0;
  if (count > capacity) return count;

  std::vector<uint64_t> keys(count);
  std::vector<int32_t> values(count);
#pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < n; ++i) {
    if (radii[2 * i] <= 0) continue;
    int64_t slot = i > 0 ? ends[i - 1] : 0;
    uint32_t depth_bits;
    std::memcpy(&depth_bits, depths + i, sizeof depth_bits);
    const TileRange r = TilesOf(means2d + 2 * i, radii + 2 * i, tiles_x, tiles_y);
    for (int y = r.y0; y < r.y1; ++y) {
      for (int x = r.x0; x < r.x1; ++x, ++slot) {
        keys[slot] = static_cast<uint64_t>(y * tiles_x + x) << 32 | depth_bits;
        values[slot] = static_cast<int32_t>(i);
      }
    }
  }
  int bits = 32;
  while ((tiles_x * tiles_y) >> (bits - 32)) ++bits;
  RadixSort(keys, values, bits);

  std::copy(values.begin(), values.end(), ids);
  int tile = 0;
  for (int64_t i = 0; i < count; ++i) {
    for (; tile <= static_cast<int>(keys[i] >> 32); ++tile) tile_offsets[tile] = static_cast<int32_t>(i);
  }
  for (; tile <= tiles_x * tiles_y; ++tile) tile_offsets[tile] = static_cast<int32_t>(count);
  return count;
}

// Blends the lists. last_positions holds the index into ids of the last splat blended at each pixel, -1 for none.
void baseline_forward(const float* means2d, const float* conics, const float* colors, const float* opacities,
                      const int32_t* ids, const int32_t* tile_offsets, int64_t width, int64_t height,
                      const float* background, int64_t threads, float* out_colors, float* out_transmittances,
                      int32_t* last_positions) {
  const Splats splats = {means2d, conics, colors, opacities};
  const int tiles_x = TilesAlong(width), tiles_y = TilesAlong(height);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int tile = 0; tile < tiles_x * tiles_y; ++tile) {
    const int x0 = tile % tiles_x * kTile, y0 = tile / tiles_x * kTile;
    for (int y = y0; y < std::min<int64_t>(y0 + kTile, height); ++y) {
      for (int x = x0; x < std::min<int64_t>(x0 + kTile, width); ++x) {
        float transmittance = 1.0f;
        float color[kChannels] = {};
        int last = -1;
        for (int i = tile_offsets[tile]; i < tile_offsets[tile + 1]; ++i) {
          const Evaluated e = Evaluate(splats, ids[i], x + 0.5f, y + 0.5f);
          if (!e.counts) continue;
          const float next = transmittance * (1.0f - e.alpha);
          if (next <= kTransmittanceMin) break;
          for (int c = 0; c < kChannels; ++c)
            color[c] += splats.colors[kChannels * ids[i] + c] * e.alpha * transmittance;
          transmittance = next;
          last = i;
        }
        const int64_t pixel = y * width + x;
        for (int c = 0; c < kChannels; ++c)
          out_colors[kChannels * pixel + c] = color[c] + transmittance * background[c];
        out_transmittances[pixel] = transmittance;
        last_positions[pixel] = last;
      }
    }
  }
}

// Gradients of all splats; v_* must hold zeros. v_alphas is the cotangent of 1 - transmittance.
void baseline_backward(const float* means2d, const float* conics, const float* colors, const float* opacities,
                       const int32_t* ids, const int32_t* tile_offsets, int64_t width, int64_t height,
                       const float* background, const float* transmittances, const int32_t* last_positions,
                       const float* v_out_colors, const float* v_alphas, int64_t threads, float* v_means2d,
                       float* v_conics, float* v_colors, float* v_opacities) {
  const Splats splats = {means2d, conics, colors, opacities};
  const Gradients out = {v_means2d, v_conics, v_colors, v_opacities};
  const auto run = threads > 1 ? Backward<true> : Backward<false>;  // one thread needs no atomics
  run(splats, out, ids, tile_offsets, width, height, background, transmittances, last_positions, v_out_colors, v_alphas,
      threads);
}

}  // extern "C"
