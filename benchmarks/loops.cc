// What surrounds the rasterizer, as one would write it down in C++: single-threaded loops over separate values, left to
// the compiler. A measure for what XLA makes of the same mathematics.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

float Dot(const float* p, const float* q) { return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]; }

void Rotation(const float* q, float r[3][3]) {
  const float w = q[0], x = q[1], y = q[2], z = q[3];
  const float rows[3][3] = {{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
                            {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
                            {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
  std::copy(&rows[0][0], &rows[0][0] + 9, &r[0][0]);
}

// Gradient of a unit quaternion, given that of its matrix.
void RotationGradient(const float* q, const float v[3][3], float* out) {
  const float w = q[0], x = q[1], y = q[2], z = q[3];
  out[0] = 2 * (x * (v[2][1] - v[1][2]) + y * (v[0][2] - v[2][0]) + z * (v[1][0] - v[0][1]));
  out[1] =
      2 * (w * (v[2][1] - v[1][2]) + y * (v[0][1] + v[1][0]) + z * (v[0][2] + v[2][0]) - 2 * x * (v[1][1] + v[2][2]));
  out[2] =
      2 * (w * (v[0][2] - v[2][0]) + x * (v[0][1] + v[1][0]) + z * (v[1][2] + v[2][1]) - 2 * y * (v[0][0] + v[2][2]));
  out[3] =
      2 * (w * (v[1][0] - v[0][1]) + x * (v[0][2] + v[2][0]) + y * (v[1][2] + v[2][1]) - 2 * z * (v[0][0] + v[1][1]));
}

// Blurs [height, width, channels] with a window, zeros outside: down the columns, then along the rows.
void Blur(const float* in, int64_t height, int64_t width, int64_t channels, const float* window, int64_t radius,
          float* between, float* out) {
  const int64_t row = width * channels;
  for (int64_t y = 0; y < height; ++y) {
    float* to = between + y * row;
    std::fill(to, to + row, 0.0f);
    for (int64_t r = std::max<int64_t>(y - radius, 0); r < std::min(y + radius + 1, height); ++r) {
      const float weight = window[r - y + radius];
      for (int64_t i = 0; i < row; ++i) to[i] += weight * in[r * row + i];
    }
  }
  for (int64_t y = 0; y < height; ++y) {
    float* to = out + y * row;
    std::fill(to, to + row, 0.0f);
    for (int64_t k = -radius; k <= radius; ++k) {
      const float weight = window[k + radius];
      const int64_t shift = k * channels, begin = std::max<int64_t>(0, -shift), end = std::min(row, row - shift);
      for (int64_t i = begin; i < end; ++i) to[i] += weight * between[y * row + i + shift];
    }
  }
}

}  // namespace

// Sum of the means2d [n, 2], conics [n, 3] and depths [n] of all splats before a pinhole camera, and the gradients of
// means [n, 3], unit quats [n, 4] and scales [n, 3]. viewmat [4, 4]; intrinsics fx, fy, cx, cy; limits: smallest and
// largest x / z and y / z of the Jacobian.
extern "C" double projection_gradient(int64_t n, const float* means, const float* quats, const float* scales,
                                      const float* viewmat, const float* intrinsics, const float* limits,
                                      const float* eps2d, float* v_means, float* v_quats, float* v_scales) {
  const float fx = intrinsics[0], fy = intrinsics[1], cx = intrinsics[2], cy = intrinsics[3], eps = *eps2d;
  const float *w0 = viewmat, *w1 = viewmat + 4, *w2 = viewmat + 8;
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float *mean = means + 3 * i, *scale = scales + 3 * i;
    const float x = Dot(w0, mean) + w0[3], y = Dot(w1, mean) + w1[3], z = Dot(w2, mean) + w2[3];
    float* v_mean = v_means + 3 * i;
    if (!(z > 0.01f)) {
      std::fill(v_mean, v_mean + 3, 0.0f);
      std::fill(v_quats + 4 * i, v_quats + 4 * i + 4, 0.0f);
      std::fill(v_scales + 3 * i, v_scales + 3 * i + 3, 0.0f);
      continue;
    }
    const float inverse = 1 / z, tx = x * inverse, ty = y * inverse;
    const float sx = std::clamp(tx, limits[0], limits[1]), sy = std::clamp(ty, limits[2], limits[3]);
    const float jx = fx * inverse, jz = -jx * sx, ky = fy * inverse, kz = -ky * sy;
    float rotation[3][3], e[3], f[3], p[3] = {}, q[3] = {};
    Rotation(quats + 4 * i, rotation);
    for (int k = 0; k < 3; ++k) {
      e[k] = jx * w0[k] + jz * w2[k];
      f[k] = ky * w1[k] + kz * w2[k];
    }
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 3; ++k) {
        p[j] += e[k] * rotation[k][j] * scale[j];
        q[j] += f[k] * rotation[k][j] * scale[j];
      }
    }
    const float cross[3] = {p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]};
    const float a = Dot(p, p) + eps, b = Dot(p, q), c = Dot(q, q) + eps;
    const float det = Dot(cross, cross) + eps * (a + c) - eps * eps;
    const float ca = c / det, cb = -b / det, cc = a / det;
    total += fx * tx + cx + fy * ty + cy + ca + cb + cc + z;

    // All cotangents are 1.
    const float va = -(ca * ca + ca * cb + cb * cb), vc = -(cb * cb + cb * cc + cc * cc);
    const float vb = -(2 * ca * cb + ca * cc + cb * cb + 2 * cb * cc);
    float v_rotation[3][3], vp[3], vq[3];
    for (int j = 0; j < 3; ++j) {
      vp[j] = 2 * va * p[j] + vb * q[j];
      vq[j] = 2 * vc * q[j] + vb * p[j];
      float v_scale = 0;
      for (int k = 0; k < 3; ++k) {
        const float v = e[k] * vp[j] + f[k] * vq[j];
        v_rotation[k][j] = v * scale[j];
        v_scale += v * rotation[k][j];
      }
      v_scales[3 * i + j] = v_scale;
    }
    RotationGradient(quats + 4 * i, v_rotation, v_quats + 4 * i);
    float vjx = 0, vjz = 0, vky = 0, vkz = 0;
    for (int k = 0; k < 3; ++k) {
      float ve = 0, vf = 0;
      for (int j = 0; j < 3; ++j) {
        ve += rotation[k][j] * scale[j] * vp[j];
        vf += rotation[k][j] * scale[j] * vq[j];
      }
      vjx += ve * w0[k];
      vjz += ve * w2[k];
      vky += vf * w1[k];
      vkz += vf * w2[k];
    }
    const float v_tx = fx + (sx == tx ? -jx * vjz : 0), v_ty = fy + (sy == ty ? -ky * vkz : 0);
    const float vx = v_tx * inverse, vy = v_ty * inverse;
    const float vz = 1 - inverse * (v_tx * tx + v_ty * ty + jx * vjx + jz * vjz + ky * vky + kz * vkz);
    for (int k = 0; k < 3; ++k) v_mean[k] = w0[k] * vx + w1[k] * vy + w2[k] * vz;
  }
  return total;
}

// Mean SSIM of two pictures [height, width, channels], and the gradient of x.
extern "C" double ssim_gradient(int64_t height, int64_t width, int64_t channels, const float* x, const float* y,
                                const float* window, int64_t radius, const float* c1_c2, float* v_x) {
  const auto n = static_cast<size_t>(height * width * channels);
  const float c1 = c1_c2[0], c2 = c1_c2[1], v = 1.0f / static_cast<float>(n);
  std::vector<float> product(n), between(n), mean_x(n), mean_y(n), squares(n), products(n);
  const auto blur = [&](const float* in, float* out) {
    Blur(in, height, width, channels, window, radius, between.data(), out);
  };
  blur(x, mean_x.data());
  blur(y, mean_y.data());
  for (size_t i = 0; i < n; ++i) product[i] = x[i] * x[i] + y[i] * y[i];
  blur(product.data(), squares.data());
  for (size_t i = 0; i < n; ++i) product[i] = x[i] * y[i];
  blur(product.data(), products.data());
  double total = 0;
  for (size_t i = 0; i < n; ++i) {
    const float mx = mean_x[i], my = mean_y[i], means = mx * mx + my * my;
    const float a1 = 2 * mx * my + c1, a2 = 2 * (products[i] - mx * my) + c2, b1 = means + c1;
    const float b2 = squares[i] - means + c2, inverse = 1 / (b1 * b2), similarity = a1 * a2 * inverse;
    total += similarity;
    const float v_xy = 2 * v * a1 * inverse, v_xx = -2 * v * similarity * b1 * inverse;
    mean_x[i] = 2 * v * inverse * (my * a2 - mx * similarity * b2) - v_xx * mx - v_xy * my;
    squares[i] = v_xx;
    products[i] = v_xy;
  }
  blur(mean_x.data(), v_x);
  blur(squares.data(), mean_y.data());
  blur(products.data(), mean_x.data());
  for (size_t i = 0; i < n; ++i) v_x[i] += x[i] * mean_y[i] + y[i] * mean_x[i];
  return total * v;
}
