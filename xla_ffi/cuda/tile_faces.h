// The faces that may touch each tile, by index, and how the threads of a block look at them together.
#ifndef JAXSPLAT_CUDA_TILE_FACES_H_
#define JAXSPLAT_CUDA_TILE_FACES_H_

#include <cstdint>

#include "cuda/rasterize_meshes.h"
#include "cuda/tile_blocks.h"
#include "math/face_extents.h"
#include "math/triangle.h"

namespace jaxsplat::cuda {

using namespace JAXSPLAT_ISA;

// What the kernels take, for a chunk of images.
struct MeshArguments : TileBlocks {
  MeshRule rule;
  MeshBatch batch;
  const PixelBox* boxes;  // by row: those of faces that are not drawn are empty
  bool distances;         // whether some face is seen beyond its outline, or has another half
};

// Finds the lists of a chunk. It returns false if there are too many entries for more than one image, and throws what
// rasterize_meshes.h says.
bool FindFaces(Device& device, MeshArguments* arguments);

// Calls f(arguments of the kernels) for chunks of images, with their lists.
template <class F>
void ForEachMeshChunk(Device& device, const ImageGrid& grid, const MeshRule& rule, const MeshBatch& meshes,
                      const F& f) {
  ForEachChunk(meshes.images, ImagesAtOnce(meshes.given, grid.tiles(), 0), [&](Chunk chunk) {
    device.Rewind();
    MeshArguments a{{grid, chunk, {}}, rule, meshes, nullptr, false};
    if (!FindFaces(device, &a)) return false;
    f(a);
    return true;
  });
}

// The pixel of one thread, and the mesh that it sees.
struct MeshPixel : BlockPixel {
  ImageIndex index;
  MeshView mesh;
  Vec centre_x, centre_y;

  __device__ explicit MeshPixel(const MeshArguments& a)
      : BlockPixel(a), index(a.batch.axes.Split(a.chunk.first + image)), mesh(a.batch.View(index)) {
    centre_x = Vec(mesh.xs[inside ? x : 0]);
    centre_y = Vec(mesh.ys[inside ? y : 0]);
    if (!inside) x = -1;  // in no box
  }
};

// A face in shared memory.
struct TileFace {
  TriangleSetup setup;
  float corners[9];
  PixelBox box;
  int32_t id;

  __device__ void Load(const MeshView& mesh, int32_t face, const PixelBox& touched) {
    id = face;
    box = touched;
    for (int k = 0; k < 9; ++k) corners[k] = mesh.face_verts[int64_t{face} * 9 + k];
    setup = TriangleSetup(corners);
  }
};

// Some faces of a tile, with the other halves of those that were clipped if kDistance.
template <int kSize, bool kDistance>
struct FaceBatch {
  TileFace faces[kSize];
  TileFace halves[kDistance ? kSize : 1];  // with id -1 where there is none that may be seen

  // Loads entry `entry` of the lists as face i.
  __device__ void Load(const MeshArguments& a, const MeshView& mesh, int64_t image, int64_t entry, int i) {
    const int64_t first_row = image * a.batch.size;
    const auto row = static_cast<uint32_t>(a.lists.entries[entry]);
    const auto face = static_cast<int32_t>(row - first_row);
    faces[i].Load(mesh, face, a.boxes[row]);
    if constexpr (kDistance) {
      halves[i].id = -1;
      if (mesh.neighbors == nullptr) return;
      const int64_t half = mesh.neighbors[face] - mesh.first;
      if (half < 0 || half >= mesh.count) return;
      const PixelBox box = a.boxes[first_row + half];
      if (box.x0 <= box.x1) halves[i].Load(mesh, static_cast<int32_t>(half), box);
    }
  }

  // Face i at one pixel.
  __device__ TriangleHit At(int i, const MeshArguments& a, const MeshPixel& me) const {
    const TileFace& face = faces[i];
    TriangleHit found{};
    if (me.x < face.box.x0 || me.x > face.box.x1 || me.y < face.box.y0 || me.y > face.box.y1) return found;
    found = Hit<kDistance>(face.setup, face.corners, a.rule, me.mesh, me.centre_x, me.centre_y);
    if constexpr (kDistance) {
      const TileFace& other = halves[i];
      if (found.hit.v && other.id >= 0) {
        const TriangleHit half = Hit<true>(other.setup, other.corners, a.rule, me.mesh, me.centre_x, me.centre_y);
        found.hit = SeenBeside(found, half, other.id < face.id);
      }
    }
    return found;
  }
};

// Calls see(i) for face i of each batch of the faces of a tile before entry `end`, and then done(its first entry, its
// size). All threads of the block take part.
template <int kSize, bool kDistance, class See, class Done>
__device__ void ForEachFace(const MeshArguments& a, const MeshPixel& me, uint32_t end,
                            FaceBatch<kSize, kDistance>& batch, const See& see, const Done& done) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (uint32_t start = me.range.begin; start < end; start += kSize) {
    const int n = end - start < kSize ? static_cast<int>(end - start) : kSize;
    __syncthreads();  // behind the last use of the batch before
    for (int i = thread; i < n; i += threads) batch.Load(a, me.mesh, me.image, start + static_cast<uint32_t>(i), i);
    __syncthreads();
    for (int i = 0; i < n; ++i) see(i);
    done(start, n);
  }
}

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_FACES_H_
