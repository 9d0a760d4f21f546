// The transformations of input tiles, weights and results in Winograd's F(2x2, 3x3), F(4x4, 3x3) and F(2x2, 5x5), and
// their transposes for the weight gradient.
//
// Tiles of 4x4 interpolate at 0, 1, -1 and infinity, tiles of 6x6 at 0, a, -a, 2a, -2a and infinity with a = sqrt(1/2).
// With these points rounding errors of F(4x4, 3x3) are 1e-6 of the results; with 0, 1, -1, 2, -2 they are twice that.

#ifndef CAFFEJAX_KERNELS_WINOGRAD_TILES_H_
#define CAFFEJAX_KERNELS_WINOGRAD_TILES_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "memory_layout.h"
#include "threads.h"

#define CAFFEJAX_INLINE inline __attribute__((always_inline))

namespace caffejax {

using Lanes __attribute__((vector_size(kBlock * sizeof(float)))) = float;

// A tile of side x side inputs gives results x results results of a convolution with a kernel x kernel weight.
struct Tiling {
  int kernel, results;

  int Side() const { return kernel + results - 1; }
  int Places() const { return Side() * Side(); }

  std::string Name() const {
    auto square = [](int n) { return std::to_string(n) + "x" + std::to_string(n); };
    return "F(" + square(results) + ", " + square(kernel) + ")";
  }
};

inline constexpr float kA = 0.70710678118654752440f;  // the points are 0, kA, -kA, 2 kA, -2 kA
inline constexpr float kScale = -2.0f / 3, kScale2 = 1.0f / 6;  // of weights at kA and at 2 kA

// One dimension of a tile's transformation: inputs to places.
template <int kSide>
CAFFEJAX_INLINE void TransformInputs(const Lanes (&d)[kSide], Lanes (&t)[kSide]) {
  if constexpr (kSide == 4) {
    t[0] = d[0] - d[2], t[1] = d[1] + d[2], t[2] = d[2] - d[1], t[3] = d[1] - d[3];
  } else {
    Lanes even = d[4] - 2 * d[2], odd = kA * (d[3] - 2 * d[1]);
    Lanes even2 = d[4] - 0.5f * d[2], odd2 = 2 * kA * (d[3] - 0.5f * d[1]);
    t[0] = d[0] - 2.5f * d[2] + d[4];
    t[1] = even + odd, t[2] = even - odd, t[3] = even2 + odd2, t[4] = even2 - odd2;
    t[5] = d[1] - 2.5f * d[3] + d[5];
  }
}

// One dimension: places to results.
template <int kSide, int kResults>
CAFFEJAX_INLINE void TransformResults(const Lanes (&m)[kSide], Lanes (&y)[kResults]) {
  if constexpr (kSide == 4) {
    y[0] = m[0] + m[1] + m[2], y[1] = m[1] - m[2] - m[3];
  } else {
    Lanes sum = m[1] + m[2], difference = kA * (m[1] - m[2]), sum2 = m[3] + m[4], difference2 = 2 * kA * (m[3] - m[4]);
    y[0] = m[0] + sum + sum2;
    y[1] = difference + difference2;
    if constexpr (kResults == 4) {
      y[2] = 0.5f * sum + 2 * sum2;
      y[3] = 0.5f * difference + 2 * difference2;
    }
    y[kResults - 1] += m[5];
  }
}

// One dimension: weights to places.
template <int kSide, int kKernel>
CAFFEJAX_INLINE void TransformKernel(const Lanes (&g)[kKernel], Lanes (&t)[kSide]) {
  t[0] = g[0], t[kSide - 1] = g[kKernel - 1];
  if constexpr (kSide == 4) {
    Lanes even = 0.5f * (g[0] + g[2]), odd = 0.5f * g[1];
    t[1] = even + odd, t[2] = even - odd;
  } else {
    Lanes even = g[0] + 0.5f * g[2], odd = g[1], even2 = g[0] + 2 * g[2], odd2 = g[1];
    if constexpr (kKernel == 5) even += 0.25f * g[4], odd += 0.5f * g[3], even2 += 4 * g[4], odd2 += 2 * g[3];
    even *= kScale, odd *= kScale * kA, even2 *= kScale2, odd2 *= kScale2 * 2 * kA;
    t[1] = even + odd, t[2] = even - odd, t[3] = even2 + odd2, t[4] = even2 - odd2;
  }
}

// One dimension: diffs of results to places, the transpose of `TransformResults`.
template <int kSide, int kResults>
CAFFEJAX_INLINE void TransformDiffs(const Lanes (&y)[kResults], Lanes (&z)[kSide]) {
  z[0] = y[0], z[kSide - 1] = y[kResults - 1];
  if constexpr (kSide == 4) {
    z[1] = y[0] + y[1], z[2] = y[0] - y[1], z[3] = -y[1];
  } else {
    Lanes even = y[0], odd = y[1], even2 = y[0], odd2 = y[1];
    if constexpr (kResults == 4) even += 0.5f * y[2], odd += 0.5f * y[3], even2 += 2 * y[2], odd2 += 2 * y[3];
    odd *= kA, odd2 *= 2 * kA;
    z[1] = even + odd, z[2] = even - odd, z[3] = even2 + odd2, z[4] = even2 - odd2;
  }
}

// One dimension: places to diffs of weights, the transpose of `TransformKernel`.
template <int kSide, int kKernel>
CAFFEJAX_INLINE void TransformKernelDiffs(const Lanes (&t)[kSide], Lanes (&g)[kKernel]) {
  if constexpr (kSide == 4) {
    Lanes sum = (t[1] + t[2]) * 0.5f;
    g[0] = t[0] + sum, g[1] = (t[1] - t[2]) * 0.5f, g[2] = sum + t[3];
  } else {
    Lanes sum = kScale * (t[1] + t[2]), difference = kScale * kA * (t[1] - t[2]);
    Lanes sum2 = kScale2 * (t[3] + t[4]), difference2 = kScale2 * 2 * kA * (t[3] - t[4]);
    g[0] = t[0] + sum + sum2, g[1] = difference + difference2, g[2] = 0.5f * sum + 2 * sum2;
    if constexpr (kKernel == 5) g[3] = 0.5f * difference + 2 * difference2, g[4] = 0.25f * sum + 4 * sum2;
    g[kKernel - 1] += t[5];
  }
}

// Transforms a tile. The result in place p, counted by rows, is written to `to[p * stride]`. `cells` points to the
// pixels of the tile. `steps` has, for each pixel, the distance in floats between blocks of its channels. The pixels
// `below` floats behind the last kResults rows and columns, which the tile below reads, are fetched into the cache.
template <int kSide, int kResults>
CAFFEJAX_INLINE void TransformTile(const float* const* cells, const int64_t* steps, int64_t blocks, int64_t below,
                                   float* to, int64_t stride) {
  for (int64_t block = 0; block < blocks; ++block, to += kBlock) {
    Lanes columns[kSide][kSide];  // by column
    for (int j = 0; j < kSide; ++j) {
      Lanes d[kSide];
      for (int i = 0; i < kSide; ++i) {
        const float* cell = cells[i * kSide + j] + block * steps[i * kSide + j];
        std::memcpy(&d[i], cell, sizeof(Lanes));
        if (std::min(i, j) >= kSide - kResults) __builtin_prefetch(cell + below);
      }
      TransformInputs<kSide>(d, columns[j]);
    }
    for (int i = 0; i < kSide; ++i) {
      Lanes d[kSide], row[kSide];
      for (int j = 0; j < kSide; ++j) d[j] = columns[j][i];
      TransformInputs<kSide>(d, row);
      for (int j = 0; j < kSide; ++j) std::memcpy(to + (kSide * i + j) * stride, &row[j], sizeof(Lanes));
    }
  }
}

// The bias, the added value and the activation of a result, applied before it is stored.
struct Finish {
  const float* bias = nullptr;  // the bias of the first channel, or null if there is none
  const float* const* added = nullptr;  // the pixels to add, in the order of `cells`, or null
  bool relu = false;
  float slope = 0;
};

// Writes the results of a tile to the pixels `cells`; `steps` is the distance of blocks of channels in floats.
template <int kSide, int kResults>
CAFFEJAX_INLINE void TransformToResults(const float* from, int64_t stride, int64_t blocks, const Finish& finish,
                                        float* const* cells, const int64_t* steps) {
  for (int64_t block = 0; block < blocks; ++block, from += kBlock) {
    Lanes columns[kSide][kResults], bias = {};
    if (finish.bias) std::memcpy(&bias, finish.bias + block * kBlock, sizeof(Lanes));
    for (int j = 0; j < kSide; ++j) {
      Lanes m[kSide];
      for (int i = 0; i < kSide; ++i) std::memcpy(&m[i], from + (kSide * i + j) * stride, sizeof(Lanes));
      TransformResults<kSide, kResults>(m, columns[j]);
    }
    for (int i = 0; i < kResults; ++i) {
      Lanes m[kSide], results[kResults];
      for (int j = 0; j < kSide; ++j) m[j] = columns[j][i];
      TransformResults<kSide, kResults>(m, results);
      for (int j = 0; j < kResults; ++j) {
        int cell = i * kResults + j;
        Lanes y = results[j] + bias;
        if (finish.added) {
          Lanes other;
          std::memcpy(&other, finish.added[cell] + block * steps[cell], sizeof(Lanes));
          y += other;
        }
        if (finish.relu) {
          Lanes below = finish.slope == 0 ? Lanes{} : y * finish.slope;
          y = y < 0 ? below : y;
        }
        std::memcpy(cells[cell] + block * steps[cell], &y, sizeof(Lanes));
      }
    }
  }
}

// Transforms the diffs of a tile's results as `TransformTile` transforms inputs, and adds them to `sums` by channel.
template <int kSide, int kResults>
CAFFEJAX_INLINE void TransformDiffTile(const float* const* cells, const int64_t* steps, int64_t blocks, int64_t below,
                                       float* to, int64_t stride, float* sums) {
  for (int64_t block = 0; block < blocks; ++block, to += kBlock, sums += kBlock) {
    Lanes columns[kResults][kSide], sum;
    std::memcpy(&sum, sums, sizeof(Lanes));
    for (int j = 0; j < kResults; ++j) {
      Lanes y[kResults];
      for (int i = 0; i < kResults; ++i) {
        const float* cell = cells[i * kResults + j] + block * steps[i * kResults + j];
        std::memcpy(&y[i], cell, sizeof(Lanes));
        __builtin_prefetch(cell + below);
        sum += y[i];
      }
      TransformDiffs<kSide, kResults>(y, columns[j]);
    }
    std::memcpy(sums, &sum, sizeof(Lanes));
    for (int i = 0; i < kSide; ++i) {
      Lanes y[kResults], row[kSide];
      for (int j = 0; j < kResults; ++j) y[j] = columns[j][i];
      TransformDiffs<kSide, kResults>(y, row);
      for (int j = 0; j < kSide; ++j) std::memcpy(to + (kSide * i + j) * stride, &row[j], sizeof(Lanes));
    }
  }
}

CAFFEJAX_FOR_EACH_PROCESSOR
static void IntoTile(Tiling tiling, const float* const* cells, const int64_t* steps, int64_t blocks, int64_t below,
                     float* to, int64_t stride) {
  if (tiling.Side() == 4) TransformTile<4, 2>(cells, steps, blocks, below, to, stride);
  else if (tiling.results == 4) TransformTile<6, 4>(cells, steps, blocks, below, to, stride);
  else TransformTile<6, 2>(cells, steps, blocks, below, to, stride);
}

CAFFEJAX_FOR_EACH_PROCESSOR
static void FromTile(Tiling tiling, const float* from, int64_t stride, int64_t blocks, const Finish& finish,
                     float* const* cells, const int64_t* steps) {
  if (tiling.Side() == 4) TransformToResults<4, 2>(from, stride, blocks, finish, cells, steps);
  else if (tiling.results == 4) TransformToResults<6, 4>(from, stride, blocks, finish, cells, steps);
  else TransformToResults<6, 2>(from, stride, blocks, finish, cells, steps);
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_WINOGRAD_TILES_H_
