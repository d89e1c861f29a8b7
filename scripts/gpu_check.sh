#!/usr/bin/env bash
# Everything that only a machine with an NVIDIA GPU can show: builds the CUDA module, compares it with the kernels for the
# CPU, runs the tests of the rasterizers on the GPU, looks for faults, and measures. No network. Needs jax with CUDA, nvcc,
# cmake and ninja; leaves its results in $OUT (default: ./gpu_check).
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-gpu_check}
mkdir -p "$out"
failed=0
step() { # name, seconds at most, command...
  local name=$1 limit=$2
  shift 2
  printf '== %s (%d s)\n' "$name" "$SECONDS"
  if ! timeout "$limit" "$@" > "$out/${name// /_}.log" 2>&1; then
    failed=1
    echo "FAILED: $name"
    tail -15 "$out/${name// /_}.log"
  fi
}
build() {
  cmake -S xla_ffi -B "$out/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DJAXSPLAT_CUDA=on \
    -DCMAKE_CUDA_ARCHITECTURES="${ARCHITECTURES:-native}" -DPython3_EXECUTABLE="$(command -v python)" &&
    ninja -C "$out/build" && cp "$out"/build/_c*.so jaxsplat/
}
export XLA_PYTHON_CLIENT_PREALLOCATE=false
step "build" 150 build
export JAX_PLATFORMS=cuda,cpu
step "scenes against the CPU" 60 python -m tests.cuda.scenes gpu
step "tests on the GPU" 360 python -m pytest -q -n 0 -x tests/test_tiles.py tests/rasterize/test_gaussians_3d.py \
  tests/rasterize/test_bounded_lists.py tests/rasterize/test_gaussians_world.py \
  tests/rasterize/test_meshes.py tests/rasterize/test_silhouettes.py \
  -k "not thread and not instruction_set and not channel_is_in and not bad_arguments"
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    step "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 1 python -m tests.cuda.scenes gpu small
  done
else
  echo "compute-sanitizer: NOT RUN, it is not installed"
fi
step "benchmark" 120 python -m benchmarks.gpu --out "$out/benchmark.json"
cat "$out/benchmark.log"
[ "$failed" = 0 ] && echo "all passed in $SECONDS s" || echo "something failed; see $out/*.log"
exit "$failed"
