// The obvious mesh rasterizer: every face at every pixel, its box tested first. Threads share the rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

struct Hit {
  float depth, bary[3], distance;
  int32_t face;
};

float Edge(float px, float py, const float* a, const float* b) {
  return (px - a[0]) * (b[1] - a[1]) - (py - a[1]) * (b[0] - a[0]);
}

float Segment(float px, float py, const float* a, const float* b) {
  const float dx = b[0] - a[0], dy = b[1] - a[1], squared = dx * dx + dy * dy;
  if (squared <= 1e-8f) return (px - b[0]) * (px - b[0]) + (py - b[1]) * (py - b[1]);
  const float t = std::clamp(((px - a[0]) * dx + (py - a[1]) * dy) / squared, 0.0f, 1.0f);
  const float x = a[0] + t * dx - px, y = a[1] + t * dy - py;
  return x * x + y * y;
}

// Whether the pixel sees the face.
bool See(const float* v, float px, float py, float blur, bool clip, Hit* hit) {
  const float reach = std::sqrt(blur);
  if (px < std::min({v[0], v[3], v[6]}) - reach || px > std::max({v[0], v[3], v[6]}) + reach) return false;
  if (py < std::min({v[1], v[4], v[7]}) - reach || py > std::max({v[1], v[4], v[7]}) + reach) return false;
  if (std::min({v[2], v[5], v[8]}) < 1e-8f) return false;
  const float* corners[3] = {v, v + 3, v + 6};
  float area = Edge(v[6], v[7], corners[0], corners[1]);
  if (std::abs(area) <= 1e-8f) return false;
  area += 1e-8f;
  float w[3], total = 0;
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    w[i] = Edge(px, py, corners[j], corners[k]) / area * corners[j][2] * corners[k][2];
    total += w[i];
  }
  total = std::max(total, 1e-8f);
  bool inside = true;
  for (float& part : w) {
    part /= total;
    inside = inside && part > 0;
  }
  if (clip) {
    total = 0;
    for (float& part : w) total += part = std::max(part, 0.0f);
    for (float& part : w) part /= std::max(total, 1e-5f);
  }
  hit->depth = w[0] * v[2] + w[1] * v[5] + w[2] * v[8];
  if (hit->depth < 0) return false;
  const float d = std::min({Segment(px, py, corners[0], corners[1]), Segment(px, py, corners[0], corners[2]),
                            Segment(px, py, corners[1], corners[2])});
  if (!inside && d >= blur) return false;
  std::copy(w, w + 3, hit->bary);
  hit->distance = inside ? -d : d;
  return true;
}

}  // namespace

extern "C" void brute_force(const float* face_verts, int64_t faces, int64_t width, int64_t height, int64_t slots,
                            const float* blur, int64_t clip, int64_t threads, int32_t* out_faces, float* out_depths,
                            float* out_bary, float* out_dists) {
#pragma omp parallel for schedule(dynamic) num_threads(static_cast<int>(threads))
  for (int64_t y = 0; y < height; ++y) {
    std::vector<Hit> kept;
    for (int64_t x = 0; x < width; ++x) {
      kept.clear();
      for (int64_t f = 0; f < faces; ++f) {
        Hit hit;
        hit.face = static_cast<int32_t>(f);
        const float px = static_cast<float>(x) + 0.5f, py = static_cast<float>(y) + 0.5f;
        if (!See(face_verts + f * 9, px, py, *blur, clip != 0, &hit)) continue;
        const auto at = std::upper_bound(kept.begin(), kept.end(), hit,
                                         [](const Hit& a, const Hit& b) { return a.depth < b.depth; });
        kept.insert(at, hit);
        if (static_cast<int64_t>(kept.size()) > slots) kept.pop_back();
      }
      for (int64_t k = 0; k < slots; ++k) {
        const int64_t at = (y * width + x) * slots + k;
        const bool there = k < static_cast<int64_t>(kept.size());
        out_faces[at] = there ? kept[k].face : -1;
        out_depths[at] = there ? kept[k].depth : -1;
        for (int i = 0; i < 3; ++i) out_bary[at * 3 + i] = there ? kept[k].bary[i] : -1;
        out_dists[at] = there ? kept[k].distance : -1;
      }
    }
  }
}
