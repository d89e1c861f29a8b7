// Data races inside kernels. They are compiled with -fsanitize=thread, but linked with the hooks below in place of the
// sanitizer's library: each access is compared with the last ones to the same place, and may be where another thread of
// the block is let in.
//
// Accesses are ordered by barriers (an epoch of the block) and by warp collectives (vector clocks); those of different
// blocks of one launch never are. Two atomics do not race. A kernel that touches the host's stack is reported too.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "emulator.h"

namespace emulator {
namespace {

struct Access {
  unsigned launch, block, epoch, clock;
  unsigned short thread;
  unsigned char bytes;
  bool atomic;
  void* caller;
};
struct Cell {  // four bytes of memory
  Access write, reads[2];
};
struct Page {
  Cell cells[1024];
};
std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
unsigned epoch;
unsigned clocks[kMostThreads];
unsigned seen[kMostThreads][kWarp];  // the newest clock of each lane of its warp that a thread knows of
std::set<std::pair<void*, void*>> reported;

std::string PlaceOf(void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0) return "?";
  char command[600], line[300] = "?";
  const auto offset = reinterpret_cast<uintptr_t>(caller) - reinterpret_cast<uintptr_t>(info.dli_fbase) - 1;
  std::snprintf(command, sizeof(command), "addr2line -e '%s' %#lx 2>/dev/null", info.dli_fname, offset);
  if (FILE* pipe = popen(command, "r")) {
    if (std::fgets(line, sizeof(line), pipe) != nullptr) line[std::strcspn(line, "\n")] = 0;
    pclose(pipe);
  }
  const char* slash = std::strrchr(line, '/');
  return slash != nullptr ? slash + 1 : line;
}

bool Within(const void* address, const void* begin, const void* end) { return address >= begin && address < end; }

bool OnHostStack(const void* address) {
  // Not thread-local: those variables count as shared memory.
  static std::map<pthread_t, std::pair<void*, size_t>> stacks;
  auto [it, is_new] = stacks.try_emplace(pthread_self());
  auto& [begin, size] = it->second;
  if (is_new) {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &begin, &size);
    pthread_attr_destroy(&attributes);
  }
  return Within(address, begin, static_cast<char*>(begin) + size);
}

bool Ordered(const Access& before, const Access& now, bool shared) {
  if (before.launch != now.launch || (before.bytes & now.bytes) == 0 || (before.atomic && now.atomic)) return true;
  if (before.block != now.block) return shared;
  if (before.thread == now.thread || before.epoch != now.epoch) return true;
  return before.thread / kWarp == now.thread / kWarp && seen[now.thread][before.thread % kWarp] >= before.clock;
}

void ReportRace(const char* kind, const Access& before, const Access& now, bool shared) {
  if (!reported.insert({before.caller, now.caller}).second) return;
  const auto text = [](const Access& a) {
    return "block " + std::to_string(a.block) + " thread " + std::to_string(a.thread) + " at " + PlaceOf(a.caller);
  };
  Report(std::string(kind) + " race on " + (shared ? "shared" : "global") + " memory: " + text(before) + ", " +
         text(now));
}

void Touch(const void* address, size_t size, bool write, bool atomic, void* caller) {
  if (running == nullptr || hooks.off != 0 || Within(address, block.stacks, block.stacks + kMostThreads * kStack) ||
      Within(address, &threadIdx, &threadIdx + 1) || Within(address, &blockIdx, &blockIdx + 1) ||
      Within(address, &blockDim, &blockDim + 1)) {
    return;
  }
  if (!atomic) MayPreempt();
  const bool shared = Within(address, block.shared_begin, block.shared_end);
  if (!shared && OnHostStack(address) && reported.insert({caller, nullptr}).second) {
    Report("a kernel touches the host's stack at " + PlaceOf(caller));
  }
  const auto first = reinterpret_cast<uintptr_t>(address), end = first + size;
  for (uintptr_t at = first; at < end;) {
    const uintptr_t in_word = at % 4, count = std::min<uintptr_t>(end - at, 4 - in_word);
    std::unique_ptr<Page>& page = pages[at >> 12];
    if (page == nullptr) page.reset(new Page());
    Cell& cell = page->cells[at >> 2 & 1023];
    const Access now{block.launch,
                     block.number,
                     epoch,
                     clocks[running->number],
                     static_cast<unsigned short>(running->number),
                     static_cast<unsigned char>(((1u << count) - 1) << in_word),
                     atomic,
                     caller};
    if (!Ordered(cell.write, now, shared)) ReportRace(write ? "write-write" : "write-read", cell.write, now, shared);
    if (write) {
      for (const Access& read : cell.reads) {
        if (!Ordered(read, now, shared)) ReportRace("read-write", read, now, shared);
      }
      cell.write = now;
    } else {  // keeps the newest read, and the newest one of another thread
      if (cell.reads[0].thread != now.thread || cell.reads[0].block != now.block) cell.reads[1] = cell.reads[0];
      cell.reads[0] = now;
    }
    at += count;
  }
}

void BeginBlock() {
  epoch = 1;
  std::fill(std::begin(clocks), std::end(clocks), 1u);
  std::memset(seen, 0, sizeof(seen));
}

void SyncWarp(int warp, unsigned lanes) {
  unsigned newest[kWarp] = {};
  for (int i = 0; i < kWarp; ++i) {
    if ((lanes >> i & 1) == 0) continue;
    const int thread = warp * kWarp + i;
    for (int j = 0; j < kWarp; ++j) newest[j] = std::max(newest[j], seen[thread][j]);
    newest[i] = std::max(newest[i], clocks[thread]);
  }
  for (int i = 0; i < kWarp; ++i) {
    if ((lanes >> i & 1) == 0) continue;
    std::memcpy(seen[warp * kWarp + i], newest, sizeof(newest));
    ++clocks[warp * kWarp + i];
  }
}

__attribute__((constructor)) void Install() {
  hooks.block_begin = BeginBlock;
  hooks.block_sync = [] { ++epoch; };
  hooks.warp_sync = SyncWarp;
  hooks.atomic = [](const void* address, size_t size, void* caller) { Touch(address, size, true, true, caller); };
}

}  // namespace
}  // namespace emulator

// What the compiler calls.
#define EMULATOR_CALLER __builtin_return_address(0)
#define EMULATOR_ACCESS(name, size, write) \
  extern "C" void __tsan_##name##size(void* p) { emulator::Touch(p, size, write, false, EMULATOR_CALLER); }
#define EMULATOR_ACCESSES(size)                \
  EMULATOR_ACCESS(read, size, false)           \
  EMULATOR_ACCESS(write, size, true)           \
  EMULATOR_ACCESS(read_write, size, true)      \
  EMULATOR_ACCESS(unaligned_read, size, false) \
  EMULATOR_ACCESS(unaligned_write, size, true) \
  EMULATOR_ACCESS(unaligned_read_write, size, true)
EMULATOR_ACCESSES(1)
EMULATOR_ACCESSES(2)
EMULATOR_ACCESSES(4)
EMULATOR_ACCESSES(8)
EMULATOR_ACCESSES(16)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* p, size_t n) { emulator::Touch(p, n, false, false, EMULATOR_CALLER); }
void __tsan_write_range(void* p, size_t n) { emulator::Touch(p, n, true, false, EMULATOR_CALLER); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  emulator::Touch(from, n, false, false, EMULATOR_CALLER);
  emulator::Touch(to, n, true, false, EMULATOR_CALLER);
  return std::memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  emulator::Touch(from, n, false, false, EMULATOR_CALLER);
  emulator::Touch(to, n, true, false, EMULATOR_CALLER);
  return std::memmove(to, from, n);
}
void* __tsan_memset(void* to, int byte, size_t n) {
  emulator::Touch(to, n, true, false, EMULATOR_CALLER);
  return std::memset(to, byte, n);
}
// Guards of local statics, and counts of shared pointers.
char __tsan_atomic8_load(const volatile char* p, int) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
int __tsan_atomic32_fetch_add(volatile int* p, int value, int) {
  return __atomic_fetch_add(p, value, __ATOMIC_ACQ_REL);
}
}
