// Local response normalization and its gradient: y = x * s ** -beta, where s = k + alpha * (sum of the squares in the
// window of x). Forward and backward at 16x192x56x56 1.6 and 3.2 ms, by XLA 3.5 and 15; GoogLeNet's training
// step takes 280 instead of 302.
//
// Lines stay in the cache of a core from the sums of their windows to their results, and s is not stored.

#ifndef CAFFEJAX_KERNELS_RESPONSE_NORMALIZATION_H_
#define CAFFEJAX_KERNELS_RESPONSE_NORMALIZATION_H_

#include <algorithm>
#include <cmath>
#include <optional>

#include "onednn_shapes.h"
#include "planes.h"

namespace caffejax {

// x and y are (batch, height, width, channels). With `dy`, y is the gradient of x. A window has `size` neighbouring
// channels, or if `within_channel` `size` x `size` cells of the plane.
struct ResponseNormalization {
  Array x, y;
  std::optional<Array> dy;
  int64_t size;
  float k, alpha, beta;
  bool within_channel;
};

inline void Check(const ResponseNormalization& n) {
  CheckArray("x", n.x, 4);
  CheckSame("x", n.x, n.y);
  if (n.dy) CheckSame("x", n.x, *n.dy);
  Require(n.size > 0 && n.size % 2 == 1, "the window has ", n.size, " cells, not an odd number");
}

// Lines of numbers that are normalized together. A window covers `half_rows` lines above and below, and in a line
// `half` cells before and after, which are `step` numbers apart.
struct ResponseLines {
  int64_t rows, length, half_rows, half, step;
  float k, alpha, beta;

  int64_t Halo() const { return half * step; }
};

// Sets `sums` (length,) to the sums of the windows of a row of get(row, i). `padded` begins and ends with zeros.
template <typename Get>
__attribute__((always_inline)) inline void SumWindows(const ResponseLines& l, int64_t row, float* padded, float* sums,
                                                      Get get) {
  float* line = padded + l.Halo();
  for (int64_t i = 0; i < l.length; ++i) line[i] = get(row, i);
  for (int64_t r = std::max<int64_t>(0, row - l.half_rows); r < std::min(l.rows, row + l.half_rows + 1); ++r) {
    for (int64_t i = 0; r != row && i < l.length; ++i) line[i] += get(r, i);
  }
  if (l.half == 1) {
    for (int64_t i = 0; i < l.length; ++i) sums[i] = padded[i] + padded[i + l.step] + padded[i + 2 * l.step];
  } else if (l.half == 2) {
    for (int64_t i = 0; i < l.length; ++i) {
      sums[i] = padded[i] + padded[i + l.step] + padded[i + 2 * l.step] + padded[i + 3 * l.step] +
                padded[i + 4 * l.step];
    }
  } else {
    std::copy(padded, padded + l.length, sums);
    for (int64_t j = 1; j <= 2 * l.half; ++j) {
      for (int64_t i = 0; i < l.length; ++i) sums[i] += padded[i + j * l.step];
    }
  }
}

// `power(s)` returns s ** -beta.
template <typename Power>
__attribute__((always_inline)) inline void NormalizeLines(const ResponseLines& l, const float* x, float* padded,
                                                          float* sums, float* y, Power power) {
  for (int64_t row = 0; row < l.rows; ++row) {
    SumWindows(l, row, padded, sums, [=](int64_t r, int64_t i) __attribute__((always_inline)) {
      return x[r * l.length + i] * x[r * l.length + i];
    });
    const float* from = x + row * l.length;
    float* to = y + row * l.length;
    for (int64_t i = 0; i < l.length; ++i) to[i] = from[i] * power(l.k + l.alpha * sums[i]);
  }
}

// `ratios` has the size of x.
template <typename Power>
__attribute__((always_inline)) inline void ComputeDiffOfLines(const ResponseLines& l, const float* x, const float* dy,
                                                              float* padded, float* sums, float* ratios, float* dx,
                                                              Power power) {
  for (int64_t row = 0; row < l.rows; ++row) {
    SumWindows(l, row, padded, sums, [=](int64_t r, int64_t i) __attribute__((always_inline)) {
      return x[r * l.length + i] * x[r * l.length + i];
    });
    int64_t start = row * l.length;
    for (int64_t i = 0; i < l.length; ++i) {
      float s = l.k + l.alpha * sums[i], diff = dy[start + i] * power(s);
      dx[start + i] = diff;
      ratios[start + i] = diff * x[start + i] / s;
    }
  }
  float factor = 2 * l.beta * l.alpha;
  for (int64_t row = 0; row < l.rows; ++row) {
    SumWindows(l, row, padded, sums,
               [=](int64_t r, int64_t i) __attribute__((always_inline)) { return ratios[r * l.length + i]; });
    for (int64_t i = 0; i < l.length; ++i) dx[row * l.length + i] -= factor * x[row * l.length + i] * sums[i];
  }
}

// Computes y from x, or if `dy` is not null, the gradient of x, which is written to y.
CAFFEJAX_FOR_EACH_PROCESSOR
static void Compute(const ResponseLines& l, const float* x, const float* dy, float* padded, float* sums, float* ratios,
                    float* y) {
  auto compute = [=](auto power) __attribute__((always_inline)) {
    if (dy) ComputeDiffOfLines(l, x, dy, padded, sums, ratios, y, power);
    else NormalizeLines(l, x, padded, sums, y, power);
  };
  if (l.beta == 0.75f) {  // the usual value: roots are cheaper than a power
    compute([](float s) __attribute__((always_inline)) {
      float root = std::sqrt(s);
      return 1 / (root * std::sqrt(root));
    });
  } else {
    compute([beta = l.beta](float s) __attribute__((always_inline)) { return std::pow(s, -beta); });
  }
}

inline void Run(const ResponseNormalization& n) {
  constexpr int64_t kFloats = 1 << 13;
  Numbers shape = n.x.dimensions();
  int64_t batch = shape[0], height = shape[1], width = shape[2], channels = shape[3], half = n.size / 2;
  int64_t lines = n.within_channel ? batch * height : batch * height * width;
  int64_t block = n.within_channel ? height : std::max<int64_t>(1, kFloats / std::max<int64_t>(1, channels));
  ResponseLines all{block, n.within_channel ? width * channels : channels, 0, std::min(half, channels), 1, n.k, n.alpha,
                    n.beta};
  if (n.within_channel) all.half_rows = std::min(half, height), all.half = std::min(half, width), all.step = channels;
  int64_t blocks = lines == 0 ? 0 : (lines + block - 1) / block;
  RunInParallel(MaxThreads(), [&](int thread, int count) {
    ZeroedFloats padded(all.length + 2 * all.Halo()), sums(all.length), ratios(n.dy ? block * all.length : 0);
    Range own = Range{0, blocks}.Part(thread, count);
    for (int64_t b = own.start; b < own.end; ++b) {
      ResponseLines part = all;
      part.rows = std::min(block, lines - b * block);
      int64_t start = b * block * all.length;
      const float* dy = n.dy ? n.dy->typed_data() + start : nullptr;
      Compute(part, n.x.typed_data() + start, dy, padded.get(), sums.get(), ratios.get(), n.y.typed_data() + start);
    }
  });
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_RESPONSE_NORMALIZATION_H_
