// A 3D Gaussian seen by a pinhole camera, linearised at its mean, and the gradient. The mathematics of
// jaxsplat/projection/ewa.py, for a vector of splats.
#ifndef JAXSPLAT_MATH_PROJECTION_H_
#define JAXSPLAT_MATH_PROJECTION_H_

#include <cstdint>

#include "core/simd.h"
#include "ops/project_gaussians.h"

namespace jaxsplat::JAXSPLAT_ISA {

struct Vec3 {
  Vec x, y, z;
};

JAXSPLAT_INLINE Vec3 operator*(const Vec& s, const Vec3& p) { return {s * p.x, s * p.y, s * p.z}; }
JAXSPLAT_INLINE Vec Dot(const Vec3& p, const Vec3& q) { return Fma(p.x, q.x, Fma(p.y, q.y, p.z * q.z)); }
// s p + q.
JAXSPLAT_INLINE Vec3 Fma(const Vec& s, const Vec3& p, const Vec3& q) {
  return {Fma(s, p.x, q.x), Fma(s, p.y, q.y), Fma(s, p.z, q.z)};
}
JAXSPLAT_INLINE Vec3 Cross(const Vec3& p, const Vec3& q) {
  return {Fnma(p.z, q.y, p.y * q.z), Fnma(p.x, q.z, p.z * q.x), Fnma(p.y, q.x, p.x * q.y)};
}
JAXSPLAT_INLINE Vec3 Keep(const Mask& m, const Vec3& p) { return {Keep(m, p.x), Keep(m, p.y), Keep(m, p.z)}; }

// The numbers of one camera.
struct Pinhole {
  float rows[3][4];
  float fx, skew, cx, shear, fy, cy, near, far, eps2d, radius_clip;
  float left, right, top, bottom;  // bounds of the pixel offset at which the Jacobian is taken
  bool usable;

  Pinhole(const float* view, const float* k, const float* limits, const ProjectionRule& rule) {
    usable = true;
    for (int i = 0; i < 12; ++i) usable &= __builtin_isfinite(rows[i / 4][i % 4] = view[i]);
    for (int i = 0; i < 6; ++i) usable &= __builtin_isfinite(k[i]);
    fx = k[0], skew = k[1], cx = k[2], shear = k[3], fy = k[4], cy = k[5];
    near = limits[0], far = limits[1], eps2d = limits[2], radius_clip = limits[3];
    const auto margin = static_cast<float>(rule.clamp_margin);
    const auto w = static_cast<float>(rule.width), h = static_cast<float>(rule.height);
    left = -(cx + margin * w), right = (1 + margin) * w - cx;
    top = -(cy + margin * h), bottom = (1 + margin) * h - cy;
  }

  Vec3 row(int i) const { return {Vec(rows[i][0]), Vec(rows[i][1]), Vec(rows[i][2])}; }
  // Coordinate `i` of a point in the camera.
  Vec Transform(int i, const Vec3& p) const { return Dot(row(i), p) + Vec(rows[i][3]); }
};

struct Ellipsoid {
  Vec3 mean, scale;
  Vec quat[4], inverse_norm;  // unit quaternion w, x, y, z, and 1 / the length that it had
  Vec3 rotation[3];           // its columns
  Vec3 factor[3];             // columns of M, the covariance being M M^T
  Mask usable;                // not so: not finite, no size, no direction
};

JAXSPLAT_INLINE Mask Finite(const Vec& a) { return Abs(a) <= Vec(3.4028235e38f); }

JAXSPLAT_INLINE Ellipsoid MakeEllipsoid(const Vec* mean, const Vec* quat, const Vec* scale, const Vec& opacity,
                                        float norm_floor) {
  Ellipsoid e;
  const Vec zero(0.0f), one(1.0f), two(2.0f);
  const Vec largest = Max(Max(Abs(quat[0]), Abs(quat[1])), Max(Abs(quat[2]), Abs(quat[3])));
  Mask usable = (Vec(norm_floor) < largest) & Finite(opacity);
  for (int i = 0; i < 3; ++i) usable = usable & Finite(mean[i]) & Finite(scale[i]) & (zero < Abs(scale[i]));
  for (int i = 0; i < 4; ++i) usable = usable & Finite(quat[i]);
  e.usable = usable;
  e.mean = Keep(usable, Vec3{mean[0], mean[1], mean[2]});
  e.scale = Keep(usable, Vec3{scale[0], scale[1], scale[2]});
  // Divided by the largest entry first, so that no square overflows or vanishes.
  const Vec norm = Select(usable, largest, one);
  Vec q[4];
  for (int i = 0; i < 4; ++i) q[i] = Keep(usable, quat[i]) / norm;
  const Vec squared = Fma(q[0], q[0], Fma(q[1], q[1], Fma(q[2], q[2], q[3] * q[3])));
  const Vec inverse = one / Sqrt(Select(usable, squared, one));
  e.inverse_norm = inverse / norm;
  for (int i = 0; i < 4; ++i) e.quat[i] = q[i] * inverse;
  const Vec w = e.quat[0], x = e.quat[1], y = e.quat[2], z = e.quat[3];
  e.rotation[0] = {one - two * Fma(y, y, z * z), two * Fma(x, y, w * z), two * Fma(x, z, zero - w * y)};
  e.rotation[1] = {two * Fma(x, y, zero - w * z), one - two * Fma(x, x, z * z), two * Fma(y, z, w * x)};
  e.rotation[2] = {two * Fma(x, z, w * y), two * Fma(y, z, zero - w * x), one - two * Fma(x, x, y * y)};
  e.factor[0] = e.scale.x * e.rotation[0];
  e.factor[1] = e.scale.y * e.rotation[1];
  e.factor[2] = e.scale.z * e.rotation[2];
  return e;
}

// A splat on the screen, with what its gradient needs again.
struct Screen {
  Vec x, y, z, inverse_z, u, v;
  Vec offset_x, offset_y;   // where the Jacobian is taken
  Mask inside_x, inside_y;  // whether that is at the mean
  Vec3 across, down;        // gradients of u and v in the world
  Vec3 p, q, normal;        // the same in units of the ellipsoid, and their cross product
  Vec a, b, c, before, det, inverse_det, compensation;
  Mask above;  // the compensation is not at its floor
};

// For the lanes that are on; those that are off get a point at depth 1.
JAXSPLAT_INLINE Screen Project(const Ellipsoid& e, const Pinhole& k, const Mask& on, float compensation_min) {
  Screen s;
  const Vec one(1.0f);
  s.x = Keep(on, k.Transform(0, e.mean));
  s.y = Keep(on, k.Transform(1, e.mean));
  s.z = Select(on, k.Transform(2, e.mean), one);
  s.inverse_z = one / s.z;
  const Vec xn = s.x * s.inverse_z, yn = s.y * s.inverse_z;
  s.u = Fma(Vec(k.fx), xn, Fma(Vec(k.skew), yn, Vec(Vec(k.cx))));
  s.v = Fma(Vec(k.shear), xn, Fma(Vec(k.fy), yn, Vec(Vec(k.cy))));
  const Vec right = Vec(Vec(k.fx)) * xn, down = Vec(Vec(k.fy)) * yn;
  s.inside_x = (Vec(k.left) <= right) & (right <= Vec(k.right));
  s.inside_y = (Vec(k.top) <= down) & (down <= Vec(k.bottom));
  s.offset_x = Select(right < Vec(k.left), Vec(k.left), Select(Vec(k.right) < right, Vec(k.right), right));
  s.offset_y = Select(down < Vec(k.top), Vec(k.top), Select(Vec(k.bottom) < down, Vec(k.bottom), down));
  const Vec zero(0.0f);
  s.across = Keep(on, s.inverse_z * Fma(zero - s.offset_x, k.row(2), Vec(Vec(k.fx)) * k.row(0)));
  s.down = Keep(on, s.inverse_z * Fma(zero - s.offset_y, k.row(2), Vec(Vec(k.fy)) * k.row(1)));
  s.p = {Dot(s.across, e.factor[0]), Dot(s.across, e.factor[1]), Dot(s.across, e.factor[2])};
  s.q = {Dot(s.down, e.factor[0]), Dot(s.down, e.factor[1]), Dot(s.down, e.factor[2])};
  const Vec a = Dot(s.p, s.p), c = Dot(s.q, s.q);
  s.b = Dot(s.p, s.q);
  // Not a c - b^2, which cancels for splats thinner than a pixel.
  s.normal = Cross(s.p, s.q);
  s.before = Dot(s.normal, s.normal);
  s.det = Select(on, Fma(Vec(k.eps2d), a + c, s.before) + Vec(Vec(k.eps2d)) * Vec(Vec(k.eps2d)), one);
  s.inverse_det = one / s.det;
  s.a = a + Vec(Vec(k.eps2d));
  s.c = c + Vec(Vec(k.eps2d));
  const Vec ratio = s.before / s.det;
  s.above = Vec(compensation_min * compensation_min) < ratio;
  s.compensation = Select(s.above, Sqrt(Select(s.above, ratio, one)), Vec(compensation_min));
  return s;
}

// Gradients of one splat in one camera, for the lanes that are on.
struct ScreenGradient {
  Vec u, v, conic[3], depth, compensation;
};

// Adds to the gradients of the mean and of the columns of M, and to the terms of the camera: the rows of the view
// matrix, fx, skew, cx, shear, fy, cy, and eps2d.
JAXSPLAT_INLINE void ProjectVjp(const Ellipsoid& e, const Pinhole& k, const Screen& s, const ScreenGradient& v,
                                Vec3* v_mean, Vec3* v_factor, Vec* v_camera) {
  const Vec zero(0.0f), half(0.5f), two(2.0f), i = s.inverse_det;
  Vec v_a = v.conic[2] * i, v_c = v.conic[0] * i;
  const Vec v_b = zero - v.conic[1] * i;
  const Vec v_inverse = Fma(v.conic[0], s.c, Fnma(v.conic[1], s.b, v.conic[2] * s.a));
  const Vec ratio = s.before * i;
  const Vec v_ratio = Keep(s.above, half * v.compensation / s.compensation);
  const Vec v_det = (zero - i) * Fma(v_ratio, ratio, v_inverse * i);
  const Vec v_before = Fma(v_ratio, i, v_det);
  v_camera[kCameraTerms - 1] = v_camera[kCameraTerms - 1] + v_a + v_c + v_det * (s.a + s.c);
  v_a = Fma(Vec(k.eps2d), v_det, v_a);
  v_c = Fma(Vec(k.eps2d), v_det, v_c);
  const Vec3 v_normal = (two * v_before) * s.normal;
  const Vec3 v_p = Fma(two * v_a, s.p, Fma(v_b, s.q, Cross(s.q, v_normal)));
  const Vec3 v_q = Fma(two * v_c, s.q, Fma(v_b, s.p, Cross(v_normal, s.p)));
  const Vec3 v_across = Fma(v_p.x, e.factor[0], Fma(v_p.y, e.factor[1], v_p.z * e.factor[2]));
  const Vec3 v_down = Fma(v_q.x, e.factor[0], Fma(v_q.y, e.factor[1], v_q.z * e.factor[2]));
  v_factor[0] = Fma(v_p.x, s.across, Fma(v_q.x, s.down, v_factor[0]));
  v_factor[1] = Fma(v_p.y, s.across, Fma(v_q.y, s.down, v_factor[1]));
  v_factor[2] = Fma(v_p.z, s.across, Fma(v_q.z, s.down, v_factor[2]));
  // across = (fx row0 - offset_x row2) / z, and down likewise. Gradients of what stands in the brackets:
  const Vec3 u_across = s.inverse_z * v_across, u_down = s.inverse_z * v_down;
  const Vec v_offset_x = zero - Dot(u_across, k.row(2)), v_offset_y = zero - Dot(u_down, k.row(2));
  const Vec v_right = Keep(s.inside_x, v_offset_x), v_bottom = Keep(s.inside_y, v_offset_y);
  const Vec xn = s.x * s.inverse_z, yn = s.y * s.inverse_z;
  const Vec v_fx = Dot(u_across, k.row(0)) + xn * (v.u + v_right);
  const Vec v_fy = Dot(u_down, k.row(1)) + yn * (v.v + v_bottom);
  const Vec v_xn = Fma(Vec(k.fx), v.u + v_right, Vec(Vec(k.shear)) * v.v),
            v_yn = Fma(Vec(k.fy), v.v + v_bottom, Vec(Vec(k.skew)) * v.u);
  const Vec v_x = v_xn * s.inverse_z, v_y = v_yn * s.inverse_z;
  const Vec v_z = v.depth - s.inverse_z * (Fma(v_xn, xn, v_yn * yn) + Dot(v_across, s.across) + Dot(v_down, s.down));
  *v_mean = Fma(v_x, k.row(0), Fma(v_y, k.row(1), Fma(v_z, k.row(2), *v_mean)));
  const Vec3 v_rows[3] = {Fma(v_x, e.mean, Vec(Vec(k.fx)) * u_across), Fma(v_y, e.mean, Vec(Vec(k.fy)) * u_down),
                          Fma(v_z, e.mean, Fma(zero - s.offset_x, u_across, (zero - s.offset_y) * u_down))};
  const Vec v_shift[3] = {v_x, v_y, v_z};
  const auto add = [&](int term, const Vec& value) { v_camera[term] = v_camera[term] + value; };
  for (int r = 0; r < 3; ++r) {
    add(4 * r, v_rows[r].x);
    add(4 * r + 1, v_rows[r].y);
    add(4 * r + 2, v_rows[r].z);
    add(4 * r + 3, v_shift[r]);
  }
  // Outside, the offset is a border of the image minus the centre.
  add(kViewTerms, v_fx);
  add(kViewTerms + 1, v.u * yn);
  add(kViewTerms + 2, v.u - (v_offset_x - v_right));
  add(kViewTerms + 3, v.v * xn);
  add(kViewTerms + 4, v_fy);
  add(kViewTerms + 5, v.v - (v_offset_y - v_bottom));
}

// Gradients of the quaternion and the scales from those of the columns of M.
JAXSPLAT_INLINE void EllipsoidVjp(const Ellipsoid& e, const Vec3* v_factor, Vec* v_quat, Vec* v_scale) {
  const Vec two(2.0f), zero(0.0f);
  for (int j = 0; j < 3; ++j) v_scale[j] = Dot(v_factor[j], e.rotation[j]);
  const Vec3 c0 = e.scale.x * v_factor[0], c1 = e.scale.y * v_factor[1], c2 = e.scale.z * v_factor[2];
  const Vec w = e.quat[0], x = e.quat[1], y = e.quat[2], z = e.quat[3];
  // Antisymmetric and symmetric parts of the gradient of the matrix.
  const Vec ax = c1.z - c2.y, ay = c2.x - c0.z, az = c0.y - c1.x;
  const Vec sx = c1.z + c2.y, sy = c2.x + c0.z, sz = c0.y + c1.x;
  const Vec v[4] = {two * Fma(x, ax, Fma(y, ay, z * az)),
                    two * (Fma(w, ax, Fma(y, sz, z * sy)) - two * x * (c1.y + c2.z)),
                    two * (Fma(w, ay, Fma(x, sz, z * sx)) - two * y * (c0.x + c2.z)),
                    two * (Fma(w, az, Fma(x, sy, y * sx)) - two * z * (c0.x + c1.y))};
  Vec along = zero;
  for (int i = 0; i < 4; ++i) along = Fma(v[i], e.quat[i], along);
  for (int i = 0; i < 4; ++i) v_quat[i] = Fnma(along, e.quat[i], v[i]) * e.inverse_norm;
}

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_MATH_PROJECTION_H_
