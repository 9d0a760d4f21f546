// The transformations of 4x4 input tiles, weights and results in Winograd's F(2x2, 3x3). They take 8 % of the time of a
// convolution by winograd.h.

#ifndef CAFFEJAX_KERNELS_WINOGRAD_TILES_H_
#define CAFFEJAX_KERNELS_WINOGRAD_TILES_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "memory_layout.h"
#include "threads.h"

namespace caffejax {

using Lanes __attribute__((vector_size(kBlock * sizeof(float)))) = float;

// Transforms a tile. The result in row i and column j is written to `to[i * 4 * stride + j * stride]`. `cells` points
// to the 16 pixels of the tile. `steps` has, for each pixel, the distance in floats between blocks of its channels.
CAFFEJAX_FOR_EACH_PROCESSOR
static void IntoTile(const float* const* cells, const int64_t* steps, int64_t blocks, float* to, int64_t stride) {
  for (int64_t block = 0; block < blocks; ++block) {
    Lanes d[4][4], t[4][4];
    for (int i = 0; i < 16; ++i) std::memcpy(&d[i / 4][i % 4], cells[i] + block * steps[i], sizeof(Lanes));
    for (int j = 0; j < 4; ++j) {
      t[0][j] = d[0][j] - d[2][j];
      t[1][j] = d[1][j] + d[2][j];
      t[2][j] = d[2][j] - d[1][j];
      t[3][j] = d[1][j] - d[3][j];
    }
    for (int i = 0; i < 4; ++i) {
      Lanes row[4] = {t[i][0] - t[i][2], t[i][1] + t[i][2], t[i][2] - t[i][1], t[i][1] - t[i][3]};
      for (int j = 0; j < 4; ++j) std::memcpy(to + (4 * i + j) * stride + block * kBlock, &row[j], sizeof(Lanes));
    }
  }
}

// The bias, the added value and the activation of a result, applied before it is stored.
struct Finish {
  const float* bias = nullptr;          // the bias of the first channel, or null if there is none
  const float* const* added = nullptr;  // the four pixels to add, in the order of `cells`, or null
  bool relu = false;
  float slope = 0;
};

// Writes the 2x2 results of a tile to the four pixels `cells`; `steps` is the distance of blocks of channels in floats.
CAFFEJAX_FOR_EACH_PROCESSOR
static void FromTile(const float* from, int64_t stride, int64_t blocks, const Finish& finish, float* const* cells,
                     const int64_t* steps) {
  for (int64_t block = 0; block < blocks; ++block) {
    Lanes t[2][4], bias = {};
    if (finish.bias) std::memcpy(&bias, finish.bias + block * kBlock, sizeof(Lanes));
    for (int j = 0; j < 4; ++j) {
      Lanes m[4];
      for (int i = 0; i < 4; ++i) std::memcpy(&m[i], from + (4 * i + j) * stride + block * kBlock, sizeof(Lanes));
      t[0][j] = m[0] + m[1] + m[2];
      t[1][j] = m[1] - m[2] - m[3];
    }
    for (int i = 0; i < 4; ++i) {
      const Lanes* r = t[i / 2];
      Lanes y = (i % 2 ? r[1] - r[2] - r[3] : r[0] + r[1] + r[2]) + bias;
      if (finish.added) {
        Lanes other;
        std::memcpy(&other, finish.added[i] + block * steps[i], sizeof(Lanes));
        y += other;
      }
      if (finish.relu) {
        Lanes below = finish.slope == 0 ? Lanes{} : y * finish.slope;
        y = y < 0 ? below : y;
      }
      std::memcpy(cells[i] + block * steps[i], &y, sizeof(Lanes));
    }
  }
}

// Transforms weights (groups, outputs, inputs, 3, 3) to (16, groups, inputs, outputs).
inline std::vector<float> TransformedWeight(const float* weight, const Dims& dims) {
  int64_t groups = dims.at(0), outputs = dims.at(1), inputs = dims.at(2);
  std::vector<float> result(16 * groups * outputs * inputs);
  auto spread = [](const auto* g, int64_t step, double* to) {
    double a = g[0], b = g[step], c = g[2 * step];
    to[0] = a, to[1] = (a + b + c) / 2, to[2] = (a - b + c) / 2, to[3] = c;
  };
  for (int64_t i = 0; i < groups * outputs * inputs; ++i) {
    int64_t c = i % inputs, k = i / inputs % outputs, g = i / inputs / outputs;
    double columns[3][4], row[4];
    for (int j = 0; j < 3; ++j) spread(weight + i * 9 + j, 3, columns[j]);
    for (int r = 0; r < 4; ++r) {
      spread(&columns[0][r], 4, row);
      for (int j = 0; j < 4; ++j) {
        result[(((4 * r + j) * groups + g) * inputs + c) * outputs + k] = static_cast<float>(row[j]);
      }
    }
  }
  return result;
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_WINOGRAD_TILES_H_
