// Sums over the rows of a matrix. XLA would compile a product with ones for each sum, which took two thirds of the code
// of a training step of ResNet-50 when its statistics were computed in this way.

#ifndef CAFFEJAX_KERNELS_ROW_SUMS_H_
#define CAFFEJAX_KERNELS_ROW_SUMS_H_

#include <algorithm>

#include "onednn_shapes.h"
#include "threads.h"

namespace caffejax {

// x (rows, channels) is summed to sums (channels,) and multiplied by the factor.
struct RowSums {
  Array x, sums;
  float factor;
};

inline void Check(const RowSums& s) {
  CheckArray("x", s.x, 2);
  CheckArray("sums", s.sums, 1);
  Require(s.sums.dimensions()[0] == s.x.dimensions()[1], "sums ", s.sums, " are not of the channels of x ", s.x);
}

// Sums the rows, for the channels from `start` to `end`. Parts of 64 rows are added first, which loses fewer digits
// than one long sum.
CAFFEJAX_FOR_EACH_PROCESSOR
static void SumRows(const float* x, int64_t rows, int64_t channels, int64_t start, int64_t end, float factor,
                    float* sums) {
  constexpr int64_t kBlock = 64;
  for (int64_t c = start; c < end; c += kBlock) {
    int64_t width = std::min(kBlock, end - c);
    float total[kBlock] = {}, part[kBlock];
    for (int64_t first = 0; first < rows; first += kBlock) {
      std::fill(part, part + kBlock, 0.0f);
      for (int64_t r = first; r < std::min(first + kBlock, rows); ++r) {
        const float* row = x + r * channels + c;
        if (width == kBlock) {
          for (int64_t i = 0; i < kBlock; ++i) part[i] += row[i];
        } else {
          for (int64_t i = 0; i < width; ++i) part[i] += row[i];
        }
      }
      for (int64_t i = 0; i < kBlock; ++i) total[i] += part[i];
    }
    for (int64_t i = 0; i < width; ++i) sums[c + i] = total[i] * factor;
  }
}

// Returns the number of threads to sum an array.
inline int ThreadsToSum(const Array& x) {
  constexpr size_t kFewCells = 1 << 16;  // adding these takes as long as waking a thread
  return x.element_count() <= kFewCells ? 1 : MaxThreads();
}

inline void Run(const RowSums& s) {
  int64_t rows = s.x.dimensions()[0], channels = s.x.dimensions()[1];
  InParallelRanges(ThreadsToSum(s.x), channels, [&](int64_t start, int64_t end) {
    SumRows(s.x.typed_data(), rows, channels, start, end, s.factor, s.sums.typed_data());
  });
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_ROW_SUMS_H_
