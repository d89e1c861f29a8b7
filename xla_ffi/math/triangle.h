// One triangle at a vector of pixels. The rules are PyTorch3D's; jaxsplat/_triangles.py says the same in JAX.
#ifndef JAXSPLAT_MATH_TRIANGLE_H_
#define JAXSPLAT_MATH_TRIANGLE_H_

#include "core/constants.h"
#include "core/simd.h"
#include "ops/rasterize_meshes.h"

namespace jaxsplat::JAXSPLAT_ISA {

// Twice the area of the triangle (p, a, b).
template <class T>
JAXSPLAT_INLINE T EdgeFunction(const T& px, const T& py, const T& ax, const T& ay, const T& bx, const T& by) {
  return (px - ax) * (by - ay) - (py - ay) * (bx - ax);
}

// A triangle as the inner loops want it: edge i lies opposite to corner i.
struct TriangleSetup {
  // Edges c + e, from the same end for both triangles that share one; turned so that a pixel d away from c is inside
  // where d.y e.x < d.x e.y. These are compared, not subtracted: then the outcome is exactly opposite for the other
  // triangle, and a corner lies exactly on its edges.
  float cx[3], cy[3], ex[3], ey[3];
  // Of two neighbours one has the centres on the edge.
  Mask has_edge[3];
  float area;                      // twice it, signed, and never 0
  float inv_length2[3], least[3];  // of the edges: 1 / length^2; along them the triangle's part is [least, least + 1]

  TriangleSetup() = default;
  // Of corners v [3, 3].
  JAXSPLAT_INLINE explicit TriangleSetup(const float* v) {
    area = EdgeFunction(v[6], v[7], v[0], v[1], v[3], v[4]);
    const bool front = area > 0;
    area += kTriangleEpsilon;
    for (int i = 0; i < 3; ++i) {
      const float* a = v + (i + 1) % 3 * 3;
      const float* b = v + (i + 2) % 3 * 3;
      const bool swap = b[0] < a[0] || (b[0] == a[0] && b[1] < a[1]);
      const float* low = swap ? b : a;
      const float* high = swap ? a : b;
      const float dx = high[0] - low[0], dy = high[1] - low[1];
      const bool positive = swap != front;
      cx[i] = low[0];
      cy[i] = low[1];
      ex[i] = positive ? dx : -dx;
      ey[i] = positive ? dy : -dy;
      const bool on_edge = dy != 0 ? dy > 0 : dx < 0;
      has_edge[i] = Vec(on_edge == positive ? -1.0f : 1.0f) < Vec(0.0f);
      // The line through a point, where the segment is too short to have a direction: its second end counts.
      const float length2 = dx * dx + dy * dy;
      const bool short_edge = length2 <= kTriangleEpsilon;
      inv_length2[i] = short_edge ? 0.0f : 1.0f / length2;
      least[i] = positive ? 0.0f : -1.0f;
    }
  }
};

struct TriangleHit {
  Mask inside, hit;
  Vec depth, distance;  // distance only if asked for
  JAXSPLAT_INLINE Vec SignedDistance() const { return Select(inside, Vec(0.0f) - distance, distance); }
};

struct Barycentric {
  Vec w[3];

  // Rounded as PyTorch3D does, because faces that share an edge have almost equal depths there.
  JAXSPLAT_INLINE Barycentric(const Vec& px, const Vec& py, const Vec& x0, const Vec& y0, const Vec& x1, const Vec& y1,
                              const Vec& x2, const Vec& y2, const Vec& area) {
    w[0] = EdgeFunction(px, py, x1, y1, x2, y2) / area;
    w[1] = EdgeFunction(px, py, x2, y2, x0, y0) / area;
    w[2] = EdgeFunction(px, py, x0, y0, x1, y1) / area;
  }
  JAXSPLAT_INLINE void Correct(const Vec& z0, const Vec& z1, const Vec& z2) {
    w[0] = w[0] * z1 * z2;
    w[1] = z0 * w[1] * z2;
    w[2] = w[2] * z0 * z1;
    const Vec total = Max((w[0] + w[1]) + w[2], Vec(kTriangleEpsilon));
    for (Vec& part : w) part = part / total;
  }
  JAXSPLAT_INLINE void Clip() {
    for (Vec& part : w) part = Max(part, Vec(0.0f));
    const Vec total = Max((w[0] + w[1]) + w[2], Vec(kBarycentricSumMin));
    for (Vec& part : w) part = part / total;
  }
  JAXSPLAT_INLINE Vec Depth(const Vec& z0, const Vec& z1, const Vec& z2) const {
    return (w[0] * z0 + w[1] * z1) + w[2] * z2;
  }
};

// Squared distance from a point at (dx, dy) from c to the part [least, least + 1] of the direction e.
JAXSPLAT_INLINE Vec PartDistance(const Vec& dx, const Vec& dy, const Vec& ex, const Vec& ey, const Vec& inv_length2,
                                 const Vec& least) {
  const Vec along = Fma(dx, ex, dy * ey) * inv_length2;
  const Vec t = Min(Max(along, least), least + Vec(1.0f));
  const Vec x = Fnma(t, ex, dx), y = Fnma(t, ey, dy);
  return Fma(x, x, y * y);
}

// Of the triangle with corners v [3, 3]. kDistance: also compute the distance, and count what lies within the blur
// radius as hit. Without, nothing but `inside` is computed where no pixel lies inside.
template <bool kDistance>
JAXSPLAT_INLINE TriangleHit Hit(const TriangleSetup& t, const float* v, const MeshRule& rule, const MeshView& mesh,
                                const Vec& px, const Vec& py) {
  TriangleHit found;
  Vec dx[3], dy[3];
  Mask within[3];
  for (int i = 0; i < 3; ++i) {
    dx[i] = px - Vec(t.cx[i]);
    dy[i] = py - Vec(t.cy[i]);
    const Vec a = dy[i] * Vec(t.ex[i]), b = dx[i] * Vec(t.ey[i]);
    within[i] = (a < b) | ((a <= b) & t.has_edge[i]);
  }
  found.inside = (within[0] & within[1]) & within[2];
  found.hit = found.inside;
  if constexpr (kDistance) {
    found.distance = PartDistance(dx[0], dy[0], Vec(t.ex[0]), Vec(t.ey[0]), Vec(t.inv_length2[0]), Vec(t.least[0]));
    for (int i = 1; i < 3; ++i) {
      found.distance = Min(found.distance, PartDistance(dx[i], dy[i], Vec(t.ex[i]), Vec(t.ey[i]), Vec(t.inv_length2[i]),
                                                        Vec(t.least[i])));
    }
    found.hit = found.inside | (found.distance < Vec(mesh.blur_radius));
  }
  if (!Any(found.hit)) return found;
  Barycentric bary(px, py, Vec(v[0]), Vec(v[1]), Vec(v[3]), Vec(v[4]), Vec(v[6]), Vec(v[7]), Vec(t.area));
  const Vec z0(v[2]), z1(v[5]), z2(v[8]);
  if (rule.perspective_correct) bary.Correct(z0, z1, z2);
  if (rule.clip_barycentric_coords) bary.Clip();
  found.depth = bary.Depth(z0, z1, z2);
  found.hit = found.hit & ((Vec(mesh.near_plane) <= found.depth) & (found.depth <= Vec(mesh.far_plane)));
  return found;
}

// Of the two halves of a clipped face a pixel sees the nearer on the screen, of equals the first. Whether it may see
// one of them; `other_first`: the other half comes first.
JAXSPLAT_INLINE Mask SeenBeside(const TriangleHit& found, const TriangleHit& half, bool other_first) {
  const Vec own = found.SignedDistance(), other = half.SignedDistance(), one(1.0f), zero(0.0f);
  const Mask nearer = other_first ? own < other : own <= other;
  return zero < Select(half.hit, Select(nearer, one, zero), one);
}

// How far a pixel is covered by a face at the signed distance d: sigmoid(x) with x = -d / sigma, and
// softplus(x) = -log(1 - sigmoid(x)).
struct Coverage {
  Vec sigmoid, softplus;
  JAXSPLAT_INLINE explicit Coverage(const Vec& x) {
    constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
    const Vec one(1.0f), zero(0.0f);
    const Vec e = Exp2(Max(Abs(x) * Vec(-kLog2E), Vec(-126.0f)));
    const Vec inverse = one / (one + e);
    sigmoid = Select(zero <= x, inverse, e * inverse);
    softplus = Fma(Log2(one + e), Vec(kLn2), Max(x, zero));
  }
};

// exp(-x) for x >= 0.
JAXSPLAT_INLINE Vec ExpOfMinus(const Vec& x) { return Exp2(Max(x * Vec(-1.44269504f), Vec(-126.0f))); }

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_MATH_TRIANGLE_H_
