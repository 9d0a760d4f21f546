// Assigns memory to the values of a frozen net. Buffers that are alive at different steps share the same bytes of an
// arena.

#ifndef CAFFEJAX_KERNELS_ARENA_H_
#define CAFFEJAX_KERNELS_ARENA_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "onednn_primitives.h"

namespace caffejax {

inline size_t AlignUp(size_t size) { return (size + 63) / 64 * 64; }

enum class BufferKind { kArgument, kResult, kWeights, kArena };

// Memory of one or more values. A buffer in the arena has a first and a last step, and an offset that `AssignOffsets`
// sets.
struct Buffer {
  BufferKind kind;
  int64_t number = 0;    // the index of the argument or result
  size_t size = 0;
  bool shared = false;   // contains several values, so it is not overwritten
  int first = -1, last = -1;
  size_t offset = 0;

  void ExtendLifetime(int step) {
    if (first < 0) first = step;
    last = step;
  }
};

// A value or a weight in memory: its buffer, its memory layout, and its offset in the buffer in bytes.
struct Tensor {
  int buffer = -1;
  memory::desc layout;
  size_t offset = 0;
};

// Sets the offset of each buffer in the arena; returns the arena's size in bytes. The largest buffers come first; each
// is placed at the lowest offset at which it overlaps no buffer that is alive at the same time.
inline size_t AssignOffsets(std::vector<Buffer>& buffers) {
  std::vector<Buffer*> order, assigned;
  for (Buffer& b : buffers) {
    if (b.kind == BufferKind::kArena && b.first >= 0) order.push_back(&b);
  }
  std::stable_sort(order.begin(), order.end(), [](Buffer* a, Buffer* b) { return a->size > b->size; });
  size_t total = 0;
  for (Buffer* b : order) {
    std::vector<std::pair<size_t, size_t>> occupied;
    for (Buffer* other : assigned) {
      if (other->first <= b->last && b->first <= other->last) {
        occupied.emplace_back(other->offset, other->offset + AlignUp(other->size));
      }
    }
    std::sort(occupied.begin(), occupied.end());
    for (auto [from, to] : occupied) {
      if (b->offset + AlignUp(b->size) <= from) break;
      b->offset = std::max(b->offset, to);
    }
    total = std::max(total, b->offset + AlignUp(b->size));
    assigned.push_back(b);
  }
  return total;
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_ARENA_H_
