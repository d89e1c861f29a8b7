// The scheduler: fibers, barriers, warp collectives, blocks. Never built with -fsanitize=thread.
#include "emulator.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <random>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a call keeps, and takes those of another stack.
extern "C" void emulator_switch(void** save, void* to);
asm(".text\n.globl emulator_switch\n.hidden emulator_switch\n.type emulator_switch,@function\nemulator_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

uint3 threadIdx;
dim3 blockIdx, blockDim;

namespace emulator {

Block block;
Fiber* running;
Hooks hooks;

namespace {

struct Options {
  long order, seed, preempt, defer;  // order of threads and blocks: 0 as they come, 1 reversed, 2 random
} options;
std::string error_text;
bool failed;
cudaError_t last_error = cudaSuccess;
std::mutex mutex;  // one launch at a time
std::mt19937_64 generator;
std::vector<std::function<void()>> queue;
#if defined(__SANITIZE_ADDRESS__)
const void* host_stack;
size_t host_stack_size;
#endif

long Environment(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atol(value) : otherwise;
}

// NaN as a float, the largest integer as an int: nobody may rely on fresh memory.
void Poison(char* data, size_t size) {
  constexpr unsigned kWord = 0x7fffffff;
  for (size_t i = 0; i < size; i += sizeof(kWord)) std::memcpy(data + i, &kWord, std::min(sizeof(kWord), size - i));
}

std::string Text(Place place) { return std::string(place.file) + ":" + std::to_string(place.line); }
bool Same(Place a, Place b) { return a.line == b.line && std::strcmp(a.file, b.file) == 0; }

Fiber* NextReady() {
  std::deque<int>& ready = block.ready;
  if (failed || ready.empty()) return nullptr;
  if (options.order == 1) std::swap(ready.front(), ready.back());
  if (options.order == 2) std::swap(ready.front(), ready[generator() % ready.size()]);
  const int number = ready.front();
  ready.pop_front();
  return &block.fibers[number];
}

// Leaves one fiber for another; null is the launcher.
void Switch(Fiber* from, Fiber* to, [[maybe_unused]] bool dying = false) {
  if (from == to) return;
  running = to;
  if (to != nullptr) threadIdx = to->index;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(dying ? nullptr : &fake, to != nullptr ? to->stack : host_stack,
                                 to != nullptr ? kStack : host_stack_size);
#endif
  emulator_switch(from != nullptr ? &from->stack_pointer : &block.host_stack_pointer,
                  to != nullptr ? to->stack_pointer : block.host_stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  const void* old_stack;
  size_t old_size;
  __sanitizer_finish_switch_fiber(fake, &old_stack, &old_size);
#endif
}

void GiveWay() { Switch(running, NextReady()); }

// Ends the launch from inside a kernel.
[[noreturn]] void Fail(const std::string& message) {
  Report(message + " [block " + std::to_string(block.number) + ", thread " + std::to_string(running->number) + "]");
  Switch(running, nullptr);
  std::abort();
}

void ReleaseBarrier() {
  BlockBarrier& b = block.barrier;
  for (int thread : b.threads) {
    const Place place = block.fibers[thread].waits;
    if (!Same(place, b.place)) Report("some threads wait at " + Text(b.place) + ", others at " + Text(place));
  }
  if (static_cast<int>(b.threads.size()) < block.threads) {
    Report(std::to_string(block.threads - static_cast<int>(b.threads.size())) + " of " + std::to_string(block.threads) +
           " threads had left the kernel when the others met at " + Text(b.place));
  }
  b.result = b.count;
  if (hooks.block_sync != nullptr) hooks.block_sync();
  for (int thread : b.threads) block.ready.push_back(thread);
  b.threads.clear();
  b.count = 0;
}

bool Complete(const Collective& c, int warp) { return ((c.arrived | block.left[warp]) & c.mask) == c.mask; }

void Release(Collective& c, int warp, int except) {
  c.done = true;
  if (hooks.warp_sync != nullptr) hooks.warp_sync(warp, c.arrived);
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((c.arrived >> lane & 1) != 0 && lane != except) block.ready.push_back(warp * kWarp + lane);
  }
}

void Leave() {
  --block.alive;
  const int warp = running->warp;
  block.left[warp] |= 1u << running->lane;
  if (block.alive > 0 && static_cast<int>(block.barrier.threads.size()) == block.alive) ReleaseBarrier();
  for (Collective& c : block.collectives[warp]) {
    if (c.mask != 0 && !c.done && Complete(c, warp)) Release(c, warp, -1);
  }
}

void Enter() {
#if defined(__SANITIZE_ADDRESS__)
  const void* old_stack;
  size_t old_size;
  __sanitizer_finish_switch_fiber(nullptr, &old_stack, &old_size);
  if (!block.started) {  // the first thread was entered from the launcher
    host_stack = old_stack;
    host_stack_size = old_size;
    block.started = true;
  }
#endif
  ++hooks.off;
  (*block.kernel)();
  --hooks.off;
  running->finished = true;
  Leave();
  Switch(running, NextReady(), true);
  std::abort();
}

// Shared variables are the zero-initialised thread-local ones of this module, which has no others.
void FindShared() {
  block.shared_begin = block.shared_end = nullptr;
#if !defined(__SANITIZE_ADDRESS__)
  thread_local volatile char anchor;  // makes the thread's copy exist
  anchor = 1;
  static_cast<void>(anchor);
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        const ElfW(Phdr)* tls = nullptr;
        bool mine = false;
        for (int k = 0; k < info->dlpi_phnum; ++k) {
          const ElfW(Phdr) & header = info->dlpi_phdr[k];
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr, me = reinterpret_cast<uintptr_t>(&FindShared);
          mine |= header.p_type == PT_LOAD && me >= begin && me < begin + header.p_memsz;
          if (header.p_type == PT_TLS) tls = &header;
        }
        if (mine && tls != nullptr && info->dlpi_tls_data != nullptr) {
          block.shared_begin = static_cast<char*>(info->dlpi_tls_data) + tls->p_filesz;
          block.shared_end = static_cast<char*>(info->dlpi_tls_data) + tls->p_memsz;
        }
        return static_cast<int>(mine);
      },
      nullptr);
#endif
}

void MakeFibers() {
  block.fibers.resize(kMostThreads);
  block.stacks = static_cast<char*>(
      mmap(nullptr, kMostThreads * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  constexpr size_t kGuard = 4096;
  for (int i = 0; i < kMostThreads; ++i) {
    block.fibers[i].stack = block.stacks + static_cast<size_t>(i) * kStack;
    mprotect(block.fibers[i].stack, kGuard, PROT_NONE);
  }
}

void StartFiber(int number) {
  Fiber& f = block.fibers[number];
  f.index = {static_cast<unsigned>(number), 0, 0};
  f.number = number;
  f.lane = number % kWarp;
  f.warp = number / kWarp;
  f.finished = false;
  f.waits = {"", 0};
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(f.stack + 4096, kStack - 4096);
#endif
  // What emulator_switch pops: six registers and where to go on; one more word aligns the stack as at a call.
  auto** top = reinterpret_cast<void**>(f.stack + kStack);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Enter);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  f.stack_pointer = top;
  block.ready.push_back(number);
}

void RunBlock(dim3 threads, unsigned number) {
  const int n = static_cast<int>(threads.x), warps = (n + kWarp - 1) / kWarp;
  blockIdx = dim3(number);
  blockDim = threads;
  block.number = number;
  block.threads = block.alive = n;
  block.barrier = BlockBarrier();
  block.ready.clear();
  block.started = false;
  block.left.assign(warps, 0);
  block.collectives.assign(warps, {});
  if (block.fibers.empty()) MakeFibers();
  for (int i = 0; i < n; ++i) StartFiber(i);
  if (block.shared_begin != nullptr) Poison(block.shared_begin, block.shared_end - block.shared_begin);
  if (hooks.block_begin != nullptr) hooks.block_begin();
  Switch(nullptr, NextReady());
  if (failed || block.alive == 0) return;
  std::map<std::string, int> waiting;
  for (int i = 0; i < n; ++i) {
    if (!block.fibers[i].finished) ++waiting[Text(block.fibers[i].waits)];
  }
  std::string message = "deadlock:";
  for (const auto& [place, count] : waiting) message += " " + std::to_string(count) + " threads wait at " + place;
  Report(message);
}

void RunGrid(dim3 grid, dim3 threads, const std::function<void()>& kernel) {
  if (failed) return;
  generator.seed(options.seed);
  block.kernel = &kernel;
  ++block.launch;
  hooks.off = 0;
  FindShared();
  std::vector<unsigned> order(grid.x);
  std::iota(order.begin(), order.end(), 0u);
  if (options.order == 1) std::reverse(order.begin(), order.end());
  if (options.order == 2) std::shuffle(order.begin(), order.end(), generator);
  for (unsigned number : order) {
    if (!failed) RunBlock(threads, number);
  }
  if (failed) last_error = cudaErrorLaunchFailure;
}

void ReadOptions() {
  options = {Environment("EMULATOR_ORDER", 0), Environment("EMULATOR_SEED", 1), Environment("EMULATOR_PREEMPT", 0),
             Environment("EMULATOR_DEFER", 0)};
}

}  // namespace

void Report(const std::string& message) {
  if (!failed) error_text = message;
  failed = true;
}

void MayPreempt() {
  if (options.preempt == 0 || running == nullptr || generator() % options.preempt != 0) return;
  block.ready.push_back(running->number);
  GiveWay();
}

void Watch(bool on) { hooks.off += on ? -1 : 1; }

int LaneId() { return running->lane; }

int Barrier(int predicate, Place place) {
  BlockBarrier& b = block.barrier;
  if (b.threads.empty()) b.place = place;
  b.count += predicate;
  b.threads.push_back(running->number);
  running->waits = place;
  if (static_cast<int>(b.threads.size()) == block.alive) ReleaseBarrier();
  GiveWay();
  return b.result;  // the next barrier cannot be complete before this thread is there
}

void Collect(const void* value, size_t size, unsigned mask, void* all, Place place) {
  const int warp = running->warp, lane = running->lane;
  Collective *c = nullptr, *spare = nullptr;
  for (Collective& other : block.collectives[warp]) {
    if (other.mask == 0) {
      spare = &other;
    } else if (!other.done && (other.mask & mask) != 0) {
      c = &other;
      break;
    }
  }
  if (c != nullptr && (c->mask != mask || c->size != size || !Same(c->place, place))) {
    Fail("divergent warp: lane " + std::to_string(lane) + " is at " + Text(place) + ", others are at " +
         Text(c->place));
  }
  if (c == nullptr) {
    if (spare == nullptr) spare = &block.collectives[warp].emplace_back();
    c = spare;
    c->mask = mask;
    c->arrived = c->read = 0;
    c->done = false;
    c->size = size;
    c->place = place;
    Poison(c->values, sizeof(c->values));
  }
  std::memcpy(c->values + lane * size, value, size);
  c->arrived |= 1u << lane;
  running->waits = place;
  if (Complete(*c, warp)) {
    Release(*c, warp, options.order == 2 ? -1 : lane);
    if (options.order == 2) GiveWay();
  } else {
    GiveWay();
  }
  std::memcpy(all, c->values, kWarp * size);
  c->read |= 1u << lane;
  if (c->read == c->arrived) c->mask = 0;
}

void NoteAtomic(const void* address, size_t size) {
  MayPreempt();
  if (hooks.atomic != nullptr) hooks.atomic(address, size, __builtin_return_address(0));
}

void Enqueue(std::function<void()> work, cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  ReadOptions();
  if (stream->captures) {
    stream->captured.push_back(std::move(work));
  } else if (options.defer != 0) {
    queue.push_back(std::move(work));
  } else if (!failed) {
    work();
  }
}

void BeginCapture(cudaStream_t stream) { stream->captures = true; }

void Replay(cudaStream_t stream) {
  stream->captures = false;
  for (int run = 0; run < 2; ++run) {
    for (const std::function<void()>& work : stream->captured) Enqueue(work, stream);
  }
}

cudaError_t LaunchGrid(dim3 grid, dim3 threads, cudaStream_t stream, std::function<void()> kernel) {
  const bool fits = grid.x > 0 && grid.x <= 0x7fffffffu && threads.x > 0 && threads.x <= kMostThreads;
  if (!fits) return last_error = cudaErrorInvalidConfiguration;
  Enqueue([=] { RunGrid(grid, threads, kernel); }, stream);
  return failed ? cudaErrorLaunchFailure : cudaSuccess;
}

}  // namespace emulator

cudaError_t cudaMalloc(void** data, size_t size) {
  if (size > static_cast<size_t>(emulator::Environment("EMULATOR_MEMORY", LONG_MAX))) return cudaErrorMemoryAllocation;
  constexpr size_t kAlignment = 256;  // as on a device
  *data = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  emulator::Poison(static_cast<char*>(*data), size);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  if (stream->captures && kind == cudaMemcpyDeviceToHost) return cudaErrorStreamCaptureUnsupported;
  emulator::Enqueue([=] { std::memmove(to, from, size); }, stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int byte, size_t size, cudaStream_t stream) {
  emulator::Enqueue([=] { std::memset(data, byte, size); }, stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->captures) return cudaErrorStreamCaptureUnsupported;
  std::lock_guard<std::mutex> lock(emulator::mutex);
  for (const std::function<void()>& work : std::exchange(emulator::queue, {})) {
    if (!emulator::failed) work();
  }
  return emulator::failed ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaGetLastError() {
  emulator::failed = false;
  return std::exchange(emulator::last_error, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure              ? emulator::error_text.c_str()
         : error == cudaErrorInvalidConfiguration     ? "invalid configuration argument"
         : error == cudaErrorMemoryAllocation         ? "out of memory"
         : error == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
                                                      : "invalid argument";
}
