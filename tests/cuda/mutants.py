"""Plants faults in the CUDA kernels and shows that the emulated scenes find each.

`python -m tests.cuda.mutants [NAME ...]` prints a table; it exits with 1 where a fault is not found.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.cuda import emulated, scenes

LISTS, FORWARD, BACKWARD = "tile_lists.cu", "tile_forward.cu", "tile_backward.cu"
ENTRIES, PRIMITIVES = "tile_entries.h", "tile_primitives.h"
FACES, NEAREST, SLOTS, SILHOUETTES = "tile_faces.h", "mesh_forward.cu", "mesh_backward.cu", "silhouettes.cu"


class Fault(NamedTuple):
    """A place that occurs once in a file below `xla_ffi/cuda`, and what is put there."""

    name: str
    file: str
    right: str
    wrong: str


FAULTS = (
    Fault("forward: no barrier behind the loads", FORWARD, "    __syncthreads();\n", ""),
    Fault("forward: no barrier before the next loads", FORWARD, "if (__syncthreads_count(done) == threads) break;", ""),
    Fault("forward: pixels outside leave early", FORWARD, "  bool done = !point.sees;\n",
          "  bool done = !point.sees;\n  if (!me.inside) return;\n"),
    Fault("forward: finished threads leave the loop over batches", FORWARD,
          "if (__syncthreads_count(done) == threads) break;", "if (done) break;\n    __syncthreads();"),
    Fault("forward: one splat too many", FORWARD, "i < n && !done; ++i", "i < n + 1 && !done; ++i"),
    Fault("forward: a batch one short", FORWARD, "__shared__ typename P::Entry batch[kBatchSize];",
          "__shared__ typename P::Entry batch[kBatchSize - 1];"),
    Fault("forward: last batch is left out", FORWARD, "start < end; start += batch_size",
          "start + batch_size <= end; start += batch_size"),
    Fault("forward: masked tiles are drawn", FORWARD, "me.on ? me.range.end : me.range.begin", "me.range.end"),
    Fault("backward: no barrier behind the loads", BACKWARD,
          "    __syncthreads();\n    uint32_t warp_hits = 0;\n", "    uint32_t warp_hits = 0;\n"),
    Fault("backward: no barrier before the next loads", BACKWARD,
          "if (__syncthreads_count(done) == threads) break;", ""),
    Fault("backward: no barrier before the sums of the warps", BACKWARD,
          "if (lane == 0) hits[warp] = warp_hits;\n    __syncthreads();", "if (lane == 0) hits[warp] = warp_hits;"),
    Fault("backward: warp sum in a divergent branch", BACKWARD,
          "if (!__any_sync(kAllLanes, hit.v)) continue;", "if (!hit.v) continue;"),
    Fault("backward: every lane writes the sums", BACKWARD,
          "if (sum_index >= 0) partial[warp][i][sum_index] = sums[0];",
          "partial[warp][i][sum_index >= 0 ? sum_index : 0] = sums[0];"),
    Fault("backward: sums of warps without a hit are added", BACKWARD,
          "if ((hits[w] >> i & 1) == 0) continue;\n", ""),
    Fault("backward: touched slots are not cleared", BACKWARD,
          "  device.Fill(slots.touched, 0, a.lists.size * a.Parts());\n", ""),
    Fault("backward: parts of a tile share their slots", BACKWARD, "* a.Parts() + me.part;", "* a.Parts();"),
    Fault("backward: clamped opacities move the splat", BACKWARD,
          "m = Keep(raw <= alpha_max & Mask{geometry}, m);", "m = Keep(Mask{geometry}, m);"),
    Fault("backward: a chunk of channels replaces the one before", BACKWARD,
          "a.first_channel == 0 ? value : static_cast<T>(*at) + value", "value"),
    Fault("reduction: another order of the splats", BACKWARD, "a.lists.order == nullptr ? i : a.lists.order[i]", "i"),
    Fault("lists: last tiles have no range", "tile_entries.cu", "if (tile >= tiles) return;",
          "if (tile >= tiles - 1) return;"),
    Fault("lists: threads beyond the last row", LISTS,
          "  if (row >= extents.chunk.count * batch.size) return;\n  const int64_t local",
          "  if (row >= extents.chunk.count * batch.size + 1) return;\n  const int64_t local"),
    Fault("lists: entries begin one late", ENTRIES, "int64_t at = i > 0 ? ends[i - 1] : 0;",
          "int64_t at = i > 0 ? ends[i - 1] + 1 : 0;"),
    Fault("lists: sorted by too few bits", "tile_entries.cu", "32, 32 + Bits(tiles), entries",
          "32, 31 + Bits(tiles), entries"),
    Fault("bounded lists: the host reads their size", LISTS, "    ends = ends_that_fit;\n",
          "    ends = ends_that_fit;\n    size = ReadSize(device, chunk, ends);\n"),
    Fault("bounded lists: what no row fills is left as it is", LISTS,
          "if (batch.most_entries > 0) device.Fill(entries, 0xff, size);", ""),
    Fault("bounded lists: rows that do not fit are emitted", LISTS, "if (ends[i] - begin > most) counts[i] = 0;",
          "if (ends[i] - begin > most + 1) counts[i] = 0;"),
    Fault("bounded lists: counted from the first image", LISTS, "if (ends[i] - begin > most)", "if (ends[i] > most)"),
    Fault("bounded lists: the count is that of those that fit", "rasterize_gaussians_3d.cu",
          "INT32_MAX)));", "batch.most_entries > 0 ? batch.most_entries : INT32_MAX)));"),
    Fault("rays: all start at the anchor", PRIMITIVES, "moving = __syncthreads_count(elsewhere) > 0;",
          "moving = false;"),
    Fault("rays: splats behind the origin are seen", PRIMITIVES, " && 0.0f < e.ray.front.v;", ";"),
    Fault("rays: outlines are those of the block to the right", PRIMITIVES,
          "blocks |= 1u << (row * along + column);", "blocks |= 2u << (row * along + column);"),
    Fault("rays: gradients of the rays are replaced by each chunk of channels", PRIMITIVES,
          "to[k] += v_ray[k].v;", "to[k] = v_ray[k].v;"),
    Fault("rays: their gradient is not cleared", BACKWARD,
          "    device.Fill(result.world->rays + a.chunk.first * pixels, 0, a.chunk.count * pixels);\n", ""),
    Fault("rays: the hits count for each chunk of channels", PRIMITIVES,
          "if (!kHits || a.first_channel > 0 || !me.inside) return;", "if (!kHits || !me.inside) return;"),
    Fault("rays: lanes without a hit are summed", BACKWARD, "if (!P::kRays || hit.v) {", "{"),
    Fault("rays: what cannot be drawn is drawn", LISTS, "if (!space.drawn) return false;\n", ""),
    Fault("meshes: no barrier behind the loads", FACES,
          "    __syncthreads();\n    for (int i = 0; i < n; ++i) see(i);", "    for (int i = 0; i < n; ++i) see(i);"),
    Fault("meshes: no barrier before the next loads", FACES,
          "    __syncthreads();  // behind the last use of the batch before\n", ""),
    Fault("meshes: threads without a pixel see faces", FACES, "    if (!inside) x = -1;  // in no box\n", ""),
    Fault("meshes: boxes end one column early", FACES, "me.x > face.box.x1", "me.x >= face.box.x1"),
    Fault("meshes: last batch is left out", FACES, "start < end; start += kSize",
          "start + kSize <= end; start += kSize"),
    Fault("meshes: both halves of a clipped face are seen", FACES,
          "found.hit = SeenBeside(found, half, other.id < face.id);", ""),
    Fault("meshes: rows beyond a mesh have faces", "tile_faces.cu", "if (row % size < image.count) {", "{"),
    Fault("meshes: faces count from the first of all", "tile_faces.cu",
          "face = images[image].first + row % batch.size;", "face = row % batch.size;"),
    Fault("meshes: equal depths push out", NEAREST, "nearer || depth < depths[k];", "nearer || depth <= depths[k];"),
    Fault("meshes: a face is found in each pass", NEAREST, "depth < behind_depth ||", "false &&"),
    Fault("meshes: pixels outside leave early", NEAREST, "  uint32_t end = me.range.end;\n",
          "  uint32_t end = me.range.end;\n  if (!me.inside) return;\n"),
    Fault("meshes: one pass too few", NEAREST, "if (__syncthreads_count(nearest.Full()) == 0)",
          "if (__syncthreads_count(!nearest.Full()) != 0)"),
    Fault("meshes: gradients lose the sign of the distance", SLOTS, "Vec(inside ? -v_dist : v_dist)", "Vec(v_dist)"),
    Fault("meshes: slots of another face are added", SLOTS, "value += same ? other : 0.0f;", "value += other;"),
    Fault("meshes: lanes beyond the warp are added", SLOTS, " && lane + step < kWarp;", ";"),
    Fault("meshes: faces of two warps lose the second", SLOTS, "lane; warp * kWarp < end; warp",
          "lane; warp * kWarp < begin + 1; warp"),
    Fault("meshes: slots of another pass are forgotten", SLOTS, "+= values[0];", "= values[0];"),
    Fault("meshes: gradients are not cleared", SLOTS, "  device.Fill(v_face_verts, 0, batch.images * gradient);\n", ""),
    Fault("silhouettes: gradients of other faces are not cleared", SILHOUETTES,
          "  device.Fill(v_face_verts, 0, meshes.images * meshes.given * 9);\n", ""),
    Fault("silhouettes: sums of warps without a hit are added", SILHOUETTES,
          "(hits[w] >> i & 1) != 0 ? partial[w][i][j] : 0.0f", "partial[w][i][j]"),
    Fault("silhouettes: hits of the batch before stay", SILHOUETTES, "    warp_hits = 0;\n    __syncthreads();",
          "    __syncthreads();"),
    Fault("silhouettes: no barrier before the sums of the warps", SILHOUETTES,
          "    warp_hits = 0;\n    __syncthreads();", "    warp_hits = 0;"),
    Fault("silhouettes: parts of a tile share their slots", SILHOUETTES, "* a.Parts() + me.part;", "* a.Parts();"),
    Fault("silhouettes: warp sum in a divergent branch", SILHOUETTES,
          "if (!__any_sync(kAllLanes, found.hit.v)) return;", "if (!found.hit.v) return;"),
    Fault("some at a time: counts land with the first images", "rasterize_gaussians_3d.cu",
          "counts[chunk.first + i] =", "counts[i] ="),
    Fault("some at a time: lists of the first images serve all", LISTS,
          "batch.axes.Split(extents.chunk.first + row / batch.size), row,", "batch.axes.Split(row / batch.size), row,"),
    Fault("lists: damage is not cleared", LISTS, "  device.Fill(damage, 0xff, 1);\n", ""),
    Fault("host reads before the stream is done", "device.h",
          '    Check(cudaStreamSynchronize(stream_), "read");\n', ""),
    Fault("memory is used again too early", "rasterize_gaussians_3d.cu",
          "    f(a);\n    return true;\n", "    device.Rewind();\n    f(a);\n    return true;\n"),
)  # fmt: skip

MODES = (
    ("plain", "", {}),
    ("plain", "", {"EMULATOR_DEFER": "1"}),
    ("plain", "", {"EMULATOR_ORDER": "2"}),
    ("races", "small", {"EMULATOR_ORDER": "2", "EMULATOR_PREEMPT": "50"}),
    ("sanitized", "", {}),
    ("few at a time", "", {}),
)


# A fault may leave something unused, which is not how it is to be found.
emulated.FLAGS = tuple(flag for flag in emulated.FLAGS if flag != "-Werror")


def find(fault: Fault) -> str | None:
    """Where the fault shows, or None."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(shutil.copytree(emulated.SOURCES, Path(folder) / "xla_ffi"))
        path = sources / "cuda" / fault.file
        text = path.read_text(encoding="utf-8")
        assert text.count(fault.right) >= 1, f"{fault.name}: the place is not in {fault.file}"
        path.write_text(text.replace(fault.right, fault.wrong, 1), encoding="utf-8")
        for kind, size, settings in MODES:
            result = scenes.run(emulated.build(kind, sources), size, settings)
            if result.returncode != 0:
                said = (result.stdout.strip() or result.stderr.strip() or f"exit {result.returncode}").splitlines()
                return f"{kind} {' '.join(settings)}: {said[0][:140]}"
    return None


def main() -> int:
    """Plants each fault by itself."""
    missed = 0
    for fault in FAULTS:
        if not sys.argv[1:] or any(word in fault.name for word in sys.argv[1:]):
            where = find(fault)
            missed += where is None
            print(f"{fault.name:55} {where or 'NOT FOUND'}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
