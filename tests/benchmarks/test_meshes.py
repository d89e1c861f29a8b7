"""The benchmark of meshes at a tiny size."""

from __future__ import annotations

from benchmarks import meshes


def test_both_programs_find_the_same_faces():
    for slots in meshes.SETTINGS:
        result = meshes.measure(meshes.landscape(200, 32, "tiny"), slots, 1, 1, baseline=True)
        assert result["same"] >= meshes.SAME and result["loop_ms"] > 0
