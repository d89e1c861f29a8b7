// One triangle at one pixel, another triangle for each lane: its values, and its reverse step.
#ifndef JAXSPLAT_MATH_TRIANGLE_VJP_H_
#define JAXSPLAT_MATH_TRIANGLE_VJP_H_

#include "core/constants.h"
#include "core/simd.h"
#include "math/triangle.h"
#include "ops/rasterize_meshes.h"

namespace jaxsplat::JAXSPLAT_ISA {

struct CornerVec {
  Vec x, y, z;
};

// Adds g times the derivative of EdgeFunction(p, a, b) by a and b.
JAXSPLAT_INLINE void EdgeVjp(const Vec& g, const Vec& px, const Vec& py, const CornerVec& a, const CornerVec& b,
                             CornerVec* v_a, CornerVec* v_b) {
  v_a->x = Fma(g, py - b.y, v_a->x);
  v_a->y = Fma(g, b.x - px, v_a->y);
  v_b->x = Fma(g, a.y - py, v_b->x);
  v_b->y = Fma(g, px - a.x, v_b->y);
}

// Where a pixel is nearest to a segment from a to b.
struct NearestPoint {
  Vec along, x, y, distance;  // x, y: from the pixel to the point
  JAXSPLAT_INLINE NearestPoint(const Vec& px, const Vec& py, const CornerVec& a, const CornerVec& b) {
    const Vec dx = b.x - a.x, dy = b.y - a.y, length2 = Fma(dx, dx, dy * dy);
    const Mask long_enough = Vec(kTriangleEpsilon) < length2;
    const Vec t = Fma(px - a.x, dx, (py - a.y) * dy) / Select(long_enough, length2, Vec(1.0f));
    // A segment too short counts as its second end.
    along = Select(long_enough, Min(Max(t, Vec(0.0f)), Vec(1.0f)), Vec(1.0f));
    x = Fma(along, dx, a.x) - px;
    y = Fma(along, dy, a.y) - py;
    distance = Fma(x, x, y * y);
  }
};

// What one triangle says about one pixel, whether or not it is hit.
struct TriangleValues {
  Vec bary[3], distance;
  JAXSPLAT_INLINE TriangleValues(const MeshRule& rule, const CornerVec (&v)[3], const Vec& px, const Vec& py) {
    const Vec area = EdgeFunction(v[2].x, v[2].y, v[0].x, v[0].y, v[1].x, v[1].y) + Vec(kTriangleEpsilon);
    Barycentric b(px, py, v[0].x, v[0].y, v[1].x, v[1].y, v[2].x, v[2].y, area);
    if (rule.perspective_correct) b.Correct(v[0].z, v[1].z, v[2].z);
    if (rule.clip_barycentric_coords) b.Clip();
    for (int i = 0; i < 3; ++i) bary[i] = b.w[i];
    distance = Min(NearestPoint(px, py, v[0], v[1]).distance,
                   Min(NearestPoint(px, py, v[0], v[2]).distance, NearestPoint(px, py, v[1], v[2]).distance));
  }
};

// Adds g times the derivative of the squared distance to the outline. Along the segment the nearest point is a minimum,
// so that only the segment's movement counts.
JAXSPLAT_INLINE void OutlineVjp(const Vec& g, const Vec& px, const Vec& py, const CornerVec (&v)[3], CornerVec* out) {
  const NearestPoint s01(px, py, v[0], v[1]), s02(px, py, v[0], v[2]), s12(px, py, v[1], v[2]);
  const Mask second = s02.distance < s01.distance;
  const Mask third = s12.distance < Min(s02.distance, s01.distance);
  const auto choose = [&](const Vec& a, const Vec& b, const Vec& c) { return Select(third, c, Select(second, b, a)); };
  const Vec g2 = g + g, zero(0.0f), one(1.0f);
  const Vec gx = g2 * choose(s01.x, s02.x, s12.x), gy = g2 * choose(s01.y, s02.y, s12.y);
  const Vec along = choose(s01.along, s02.along, s12.along), rest = one - along;
  const Vec weights[3] = {choose(rest, rest, zero), choose(along, zero, rest), choose(zero, along, along)};
  for (int i = 0; i < 3; ++i) {
    out[i].x = Fma(gx, weights[i], out[i].x);
    out[i].y = Fma(gy, weights[i], out[i].y);
  }
}

// Cotangents of the corners from those of depth, coordinates and (unsigned) distance.
JAXSPLAT_INLINE void TriangleVjp(const MeshRule& rule, const CornerVec (&v)[3], const Vec& px, const Vec& py,
                                 const Vec& v_depth, const Vec (&v_bary)[3], const Vec& v_distance, CornerVec* out) {
  // What the picture divides by is inverted once here: the last bit matters to which face is nearest, to no gradient.
  const Vec zero(0.0f), one(1.0f), tiny(kTriangleEpsilon);
  const Vec area = EdgeFunction(v[2].x, v[2].y, v[0].x, v[0].y, v[1].x, v[1].y) + tiny, inverse = one / area;
  Vec flat[3], corrected[3], bary[3];
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    flat[i] = EdgeFunction(px, py, v[j].x, v[j].y, v[k].x, v[k].y) * inverse;
    corrected[i] = rule.perspective_correct ? flat[i] * v[j].z * v[k].z : flat[i];
  }
  const Vec weight = (corrected[0] + corrected[1]) + corrected[2], unweight = one / Max(weight, tiny);
  for (int i = 0; i < 3; ++i) {
    if (rule.perspective_correct) corrected[i] = corrected[i] * unweight;
    bary[i] = rule.clip_barycentric_coords ? Max(corrected[i], zero) : corrected[i];
  }
  const Vec least(kBarycentricSumMin), sum = (bary[0] + bary[1]) + bary[2], normalize = one / Max(sum, least);
  Vec g[3];
  for (int i = 0; i < 3; ++i) {
    if (rule.clip_barycentric_coords) bary[i] = bary[i] * normalize;
    g[i] = Fma(v_depth, v[i].z, v_bary[i]);
    out[i] = {zero, zero, v_depth * bary[i]};
  }
  if (rule.clip_barycentric_coords) {
    const Vec dot = Fma(g[0], bary[0], Fma(g[1], bary[1], g[2] * bary[2]));
    const Vec shift = Keep(least < sum, dot);
    for (int i = 0; i < 3; ++i) g[i] = Keep(zero <= corrected[i], (g[i] - shift) * normalize);
  }
  if (rule.perspective_correct) {
    const Vec dot = Fma(g[0], corrected[0], Fma(g[1], corrected[1], g[2] * corrected[2]));
    const Vec shift = Keep(tiny < weight, dot);
    Vec t[3], gt[3];
    for (int i = 0; i < 3; ++i) {
      t[i] = (g[i] - shift) * unweight;
      gt[i] = t[i] * flat[i];
    }
    for (int i = 0; i < 3; ++i) {
      const int j = (i + 1) % 3, k = (i + 2) % 3;
      g[i] = t[i] * v[j].z * v[k].z;
      // Corner i's depth is in the products of the two others.
      out[i].z = out[i].z + Fma(gt[j], v[k].z, gt[k] * v[j].z);
    }
  }
  const Vec g_area = zero - Fma(g[0], flat[0], Fma(g[1], flat[1], g[2] * flat[2])) * inverse;
  for (int i = 0; i < 3; ++i) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    EdgeVjp(g[i] * inverse, px, py, v[j], v[k], &out[j], &out[k]);
    // The doubled area by corner i, and by symmetry the others.
    out[i].x = Fma(g_area, v[k].y - v[j].y, out[i].x);
    out[i].y = Fma(g_area, v[j].x - v[k].x, out[i].y);
  }
  OutlineVjp(v_distance, px, py, v, out);
}

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_MATH_TRIANGLE_VJP_H_
