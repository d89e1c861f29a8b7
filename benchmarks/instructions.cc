// One pass of the rasterizer over a scene of its own making, as often as asked: `instructions SCENE STAGE REPEATS`. Run
// under a tool that counts instructions; the difference of two repeat counts is the cost of a pass.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cpu/rasterize_gaussians_3d.h"

using namespace jaxsplat;

namespace {

struct Random {
  uint64_t state = 1;
  float operator()(float low, float high) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * static_cast<float>(state >> 40) / 16777216.0f;
  }
};

struct Scene {
  int64_t splats, channels;
  float smallest, largest;  // standard deviations in pixels
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool dense = std::strcmp(argv[1], "dense") == 0, many = std::strcmp(argv[1], "channels16") == 0;
  const Scene scene = many ? Scene{400, 16, 1, 6} : dense ? Scene{600, 3, 4, 12} : Scene{3000, 3, 0.6f, 2};
  const int repeats = std::atoi(argv[3]);
  const ImageGrid grid{150, 100, 16};  // the last tiles reach beyond the image
  const BlendRule blend{0.99, 1.0 / 255, 1e-4, false, 0};
  const auto n = static_cast<size_t>(scene.splats), d = static_cast<size_t>(scene.channels), pixels = size_t{150} * 100;
  std::vector<float> means(2 * n), conics(3 * n), colors(d * n), opacities(n), depths(n);
  std::vector<int32_t> radii(2 * n);
  Random random;
  for (size_t i = 0; i < n; ++i) {
    means[2 * i] = random(-10, 160);
    means[2 * i + 1] = random(-10, 110);
    const float sx = random(scene.smallest, scene.largest), sy = random(scene.smallest, scene.largest);
    const float correlation = random(-0.8f, 0.8f), rest = 1 - correlation * correlation;
    conics[3 * i] = 1 / (sx * sx * rest);
    conics[3 * i + 1] = -correlation / (sx * sy * rest);
    conics[3 * i + 2] = 1 / (sy * sy * rest);
    opacities[i] = random(0.01f, 0.999f);
    depths[i] = random(1, 10);
    radii[2 * i] = static_cast<int32_t>(3.4f * sx) + 1;
    radii[2 * i + 1] = static_cast<int32_t>(3.4f * sy) + 1;
    for (size_t c = 0; c < d; ++c) colors[d * i + c] = random(0, 1);
  }
  Splats2d splats{};
  splats.size = scene.splats;
  splats.channels = scene.channels;
  splats.means = means.data();
  splats.conics = conics.data();
  splats.colors = colors.data();
  splats.opacities = opacities.data();
  splats.depths = depths.data();
  splats.radii = radii.data();
  const bool on = true;
  const TileMask mask{&on, 1};
  std::vector<float> picture(d * pixels), transmittances(pixels), v_picture(d * pixels), v_transmittances(pixels);
  std::vector<int32_t> last(pixels), ids(1 << 16), offsets(static_cast<size_t>(grid.tiles() + 1)), touched(n);
  int32_t count = 0;
  for (float& v : v_picture) v = random(-1, 1);
  std::vector<float> v_means(2 * n), v_conics(3 * n), v_colors(d * n), v_opacities(n);
  const auto forward = [&](bool keep) {
    RasterizeForward(nullptr, grid, blend, splats, mask, keep, {picture.data(), transmittances.data(), last.data()});
  };
  const auto backward = [&](bool kept) {
    RasterizeBackward(nullptr, grid, blend, splats, mask, kept,
                      {picture.data(), transmittances.data(), v_picture.data(), v_transmittances.data()},
                      {v_means.data(), v_conics.data(), v_colors.data(), v_opacities.data(), nullptr});
  };
  forward(false);
  for (int i = 0; i < repeats; ++i) {
    if (std::strcmp(argv[2], "forward") == 0) {
      forward(false);
    } else if (std::strcmp(argv[2], "backward") == 0) {
      backward(false);
    } else if (std::strcmp(argv[2], "both") == 0) {
      forward(true);
      backward(true);
    } else {
      IntersectTiles(nullptr, grid,
                     {scene.splats, means.data(), radii.data(), depths.data(), conics.data(), opacities.data(),
                      blend.alpha_min, static_cast<int64_t>(ids.size())},
                     {ids.data(), offsets.data(), touched.data(), &count});
    }
  }
  std::printf("%d %g %g\n", count, static_cast<double>(picture[0]), static_cast<double>(v_means[0]));
}
