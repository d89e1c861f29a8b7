"""The benchmark of meshes at a tiny size."""

from __future__ import annotations

import numpy as np

from benchmarks import meshes


def test_both_programs_find_the_same_faces():
    for slots in meshes.SETTINGS:
        result = meshes.measure(meshes.landscape(200, 32, "tiny"), slots, 1, 1, baseline=True)
        assert result["same"] >= meshes.SAME and result["loop_ms"] > 0


def test_growth_is_the_slope_of_the_logarithms():
    series = {"both": [(50, 16), (200, 32)], "pixels": [(50, 16), (50, 64)]}
    for name, result in meshes.growth(series, 1).items():
        first, last = result["forward_ms"]
        np.testing.assert_allclose(result["exponent"], np.log(last / first) / np.log({"both": 4, "pixels": 16}[name]))
