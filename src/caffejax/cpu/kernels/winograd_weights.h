// The transformation of weights for Winograd's convolutions (winograd.h), directly to the layout that oneDNN's products
// need. The lanes of registers are the columns of the matrices.

#ifndef CAFFEJAX_KERNELS_WINOGRAD_WEIGHTS_H_
#define CAFFEJAX_KERNELS_WINOGRAD_WEIGHTS_H_

#include <utility>

#include "winograd_tiles.h"

namespace caffejax {

// The number of columns of a panel if each matrix of a transformed weight is stored in panels, (panels, rows, columns
// of a panel), or 0 if it is stored in another order.
inline int64_t PanelOf(const memory::desc& layout) {
  using tag = memory::format_tag;
  Dims dims = layout.get_dims();
  if (layout == Plain(dims)) return dims.at(2);
  for (auto [panel, blocked] :
       {std::pair{64, tag::aCB16b64c}, {48, tag::aCB16b48c}, {32, tag::aCB16b32c}, {16, tag::aCB16b16c}}) {
    if (layout == memory::desc(dims, Type::f32, blocked)) return panel;
  }
  return 0;
}

// Transforms weights (outputs, inputs, kernel, kernel) of one group to matrices (rows, columns) for each place, which
// are `step` floats apart and stored in panels of `panel` columns. The rows are the inputs, or if `backward` the
// outputs, whose kernels are then turned by half a turn. Computes 16 outputs, from `k` on.
template <int kSide, int kKernel>
CAFFEJAX_INLINE void TransformBlocks(const float* weight, int64_t outputs, int64_t inputs, bool backward, int64_t k,
                                     float* to, int64_t step, int64_t panel) {
  constexpr int kCells = kKernel * kKernel;
  int64_t rows = backward ? outputs : inputs, row_step = backward ? inputs * kCells : kCells;
  int64_t lane_step = backward ? kCells : inputs * kCells;  // the lanes are columns
  for (int64_t c = 0; c < inputs; c += kBlock) {
    for (int64_t row = 0; row < kBlock; ++row) {
      const float* from = weight + (k * inputs + c) * kCells + row * row_step;
      alignas(64) float cells[kCells][kBlock];
      for (int64_t lane = 0; lane < kBlock; ++lane) {
        for (int cell = 0; cell < kCells; ++cell) {
          cells[backward ? kCells - 1 - cell : cell][lane] = from[lane * lane_step + cell];
        }
      }
      Lanes columns[kKernel][kSide], g[kKernel], results[kSide];
      for (int j = 0; j < kKernel; ++j) {
        for (int i = 0; i < kKernel; ++i) std::memcpy(&g[i], cells[i * kKernel + j], sizeof(Lanes));
        TransformKernel<kSide, kKernel>(g, columns[j]);
      }
      int64_t r = (backward ? k : c) + row, column = backward ? c : k;
      float* line = to + column / panel * panel * rows + r * panel + column % panel;
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kKernel; ++j) g[j] = columns[j][i];
        TransformKernel<kSide, kKernel>(g, results);
        for (int j = 0; j < kSide; ++j) std::memcpy(line + (kSide * i + j) * step, &results[j], sizeof(Lanes));
      }
    }
  }
}

CAFFEJAX_FOR_EACH_PROCESSOR
static void TransformOutputs(Tiling tiling, const float* weight, int64_t outputs, int64_t inputs, bool backward,
                             int64_t k, float* to, int64_t step, int64_t panel) {
  if (tiling.Side() == 4) {
    TransformBlocks<4, 3>(weight, outputs, inputs, backward, k, to, step, panel);
  } else if (tiling.kernel == 3) {
    TransformBlocks<6, 3>(weight, outputs, inputs, backward, k, to, step, panel);
  } else {
    TransformBlocks<6, 5>(weight, outputs, inputs, backward, k, to, step, panel);
  }
}

// Transforms weights (groups, outputs, inputs, kernel, kernel) to (places, groups, rows, columns) in `layout`. The rows
// are the inputs and the columns the outputs, or the reverse if `backward`; the channels are in full blocks.
inline void TransformWeights(Tiling tiling, const float* weight, int64_t groups, bool backward,
                             const memory::desc& layout, float* to) {
  Dims dims = layout.get_dims();
  int64_t panel = PanelOf(layout), rows = dims[1], columns = dims[2];
  int64_t outputs = backward ? rows : columns, inputs = backward ? columns : rows, blocks = outputs / kBlock;
  int64_t weight_size = outputs * inputs * tiling.kernel * tiling.kernel;
  int64_t matrix = rows * ((columns + panel - 1) / panel * panel);
  RunInParallel(MaxThreads(), [&](int thread, int threads) {
    for (int64_t i = groups * blocks * thread / threads; i < groups * blocks * (thread + 1) / threads; ++i) {
      int64_t group = i / blocks, block = i % blocks;
      TransformOutputs(tiling, weight + group * weight_size, outputs, inputs, backward, block * kBlock,
                       to + group * matrix, groups * matrix, panel);
    }
  });
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_WINOGRAD_WEIGHTS_H_
