// Sizes and memory that the kernels for convolutions over planes share.

#ifndef CAFFEJAX_KERNELS_PLANES_H_
#define CAFFEJAX_KERNELS_PLANES_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "threads.h"

#define CAFFEJAX_AVX512 __attribute__((target("avx512f")))

namespace caffejax {

// The sizes of a convolution: `batch` images of height x width x inputs, and of out_height x out_width x outputs, all
// with the channels last.
struct PlaneShape {
  int64_t batch, height, width, inputs, out_height, out_width, outputs, kernel[2], stride[2], low[2];

  bool IsPointwise() const { return kernel[0] == 1 && kernel[1] == 1; }

  int64_t OutPixels() const { return batch * out_height * out_width; }

  // Returns whether each pixel has a cell at its window's start.
  bool StartsAreInside() const {
    return low[0] == 0 && low[1] == 0 && (out_height - 1) * stride[0] < height && (out_width - 1) * stride[1] < width;
  }

  // Returns whether the padding is narrower than the kernel. A copy of wider padding could take much memory.
  bool HasNarrowPadding() const {
    for (int axis : {0, 1}) {
      int64_t size = axis == 0 ? height : width, out_size = axis == 0 ? out_height : out_width;
      if ((out_size - 1) * stride[axis] + kernel[axis] > size + 2 * kernel[axis]) return false;
    }
    return true;
  }
};

struct Range {
  int64_t start, end;

  int64_t size() const { return end - start; }

  // Returns one of `parts` nearly equal parts.
  Range Part(int64_t part, int64_t parts) const {
    return {start + size() * part / parts, start + size() * (part + 1) / parts};
  }
};

// Zeroed, aligned floats.
class ZeroedFloats {
 public:
  explicit ZeroedFloats(int64_t size) {
    size_t bytes = (size * sizeof(float) + 63) / 64 * 64;
    block_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (!block_) throw std::bad_alloc();
    std::memset(block_.get(), 0, bytes);
  }
  float* get() const { return block_.get(); }

 private:
  struct Free {
    void operator()(float* block) const { std::free(block); }
  };
  std::unique_ptr<float, Free> block_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PLANES_H_
