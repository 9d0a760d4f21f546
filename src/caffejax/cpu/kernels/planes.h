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

struct Range {
  int64_t start, end;

  int64_t size() const { return end - start; }

  // Returns one of `parts` nearly equal parts.
  Range Part(int64_t part, int64_t parts) const {
    return {start + size() * part / parts, start + size() * (part + 1) / parts};
  }
};

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

  // Returns the cell at the start of a pixel's window, or -1 if it is in the padding. Cells and pixels of all images
  // are counted.
  int64_t CellOf(int64_t pixel) const {
    int64_t row = pixel / out_width % out_height * stride[0] - low[0], column = pixel % out_width * stride[1] - low[1];
    if (row < 0 || row >= height || column < 0 || column >= width) return -1;
    return (pixel / (out_width * out_height) * height + row) * width + column;
  }

  // Copies the cells at the starts of the windows of some pixels, with zeros for the padding.
  void GatherCells(const float* x, Range pixels, float* to) const {
    for (int64_t pixel = pixels.start; pixel < pixels.end; ++pixel, to += inputs) {
      int64_t cell = CellOf(pixel);
      if (cell >= 0) std::memcpy(to, x + cell * inputs, inputs * sizeof(float));
      else std::memset(to, 0, inputs * sizeof(float));
    }
  }

  // Returns the number of lines of an image that the windows of some rows of pixels read, padding included.
  int64_t LinesOf(int64_t rows) const { return (rows - 1) * stride[0] + kernel[0]; }

  // Returns the number of floats in such a line.
  int64_t LineFloats() const { return ((out_width - 1) * stride[1] + kernel[1]) * inputs; }

  // Returns the floats of such a line that are within the image.
  Range FloatsInside() const {
    int64_t start = std::min(LineFloats(), low[1] * inputs);
    return {start, std::clamp((low[1] + width) * inputs, start, LineFloats())};
  }

  // Copies the lines of an image that the windows of some rows of pixels read, with zeros for the padding.
  void CopyLines(const float* image, Range rows, float* to) const {
    Range inside = FloatsInside();
    int64_t floats = LineFloats(), first = rows.start * stride[0] - low[0];
    for (int64_t row = first; row < first + LinesOf(rows.size()); ++row, to += floats) {
      std::fill(to, to + floats, 0.0f);
      if (row < 0 || row >= height) continue;
      const float* from = image + (row * width - low[1]) * inputs;
      std::copy(from + inside.start, from + inside.end, to + inside.start);
    }
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
