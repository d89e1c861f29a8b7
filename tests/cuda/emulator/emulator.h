// State of the emulator that its race detector sees too.
#ifndef JAXSPLAT_EMULATOR_EMULATOR_H_
#define JAXSPLAT_EMULATOR_EMULATOR_H_

#include <cuda_runtime.h>

#include <deque>
#include <string>
#include <vector>

namespace emulator {

inline constexpr int kWarp = 32, kMostThreads = 1024;
#if defined(__SANITIZE_ADDRESS__)
inline constexpr size_t kStack = size_t{256} << 10;
#else
inline constexpr size_t kStack = size_t{64} << 10;
#endif

// A thread of the block that runs.
struct Fiber {
  uint3 index;
  int number, lane, warp;
  void* stack_pointer;
  char* stack;
  bool finished;
  Place waits;
};

struct BlockBarrier {
  Place place{"", 0};
  int count = 0, result = 0;
  std::vector<int> threads;
};

// What the lanes of a warp do together. A mask of 0: free.
struct Collective {
  unsigned mask = 0, arrived = 0, read = 0;
  bool done = false;
  size_t size = 0;
  Place place{"", 0};
  alignas(16) char values[kWarp * 8];
};

struct Block {
  int threads = 0, alive = 0;
  unsigned launch = 0, number = 0;
  void* host_stack_pointer = nullptr;
  const std::function<void()>* kernel = nullptr;
  std::deque<int> ready;
  BlockBarrier barrier;
  std::vector<unsigned> left;  // lanes that left the kernel, by warp
  std::vector<std::deque<Collective>> collectives;
  std::vector<Fiber> fibers;
  char* stacks = nullptr;
  char *shared_begin = nullptr, *shared_end = nullptr;
  bool started = false;
};
extern Block block;
extern Fiber* running;  // null outside of kernels

// Filled in by the race detector.
struct Hooks {
  void (*block_begin)() = nullptr;
  void (*block_sync)() = nullptr;
  void (*warp_sync)(int warp, unsigned lanes) = nullptr;
  void (*atomic)(const void* address, size_t size, void* caller) = nullptr;
  int off = 0;
};
extern Hooks hooks;

// Makes the launch fail; the first message is kept.
void Report(const std::string& message);
// Lets another thread run at one access in EMULATOR_PREEMPT.
void MayPreempt();

}  // namespace emulator

#endif  // JAXSPLAT_EMULATOR_EMULATOR_H_
