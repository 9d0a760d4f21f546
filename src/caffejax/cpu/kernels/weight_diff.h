// The weight gradient of convolutions over planes, for processors with AVX-512, where it is faster than oneDNN's and
// winograd_weight_diff.h cannot compute it: 4 times as fast for 3x3 with stride 2 and 3 inputs. pointwise_weight_diff.h
// computes most 1x1 convolutions.
//
// The windows of a block of some 128 pixels are copied to panels of 6 inputs, their diffs to panels of 64 outputs. The
// 6x64 sums of two panels stay in registers while all pixels of the block are added.

#ifndef CAFFEJAX_KERNELS_WEIGHT_DIFF_H_
#define CAFFEJAX_KERNELS_WEIGHT_DIFF_H_

#include <algorithm>
#include <utility>

#include <immintrin.h>

#include "planes.h"

namespace caffejax {

class DirectWeightDiff {
 public:
  static constexpr int64_t kLanes = 16, kInputs = 6, kOutputs = 4 * kLanes, kPixels = 128;
  using Floats __attribute__((vector_size(kLanes * sizeof(float)), aligned(4))) = float;

  // Returns whether this code is faster than oneDNN's by measurement: for few inputs and wide planes. Padding wider
  // than the kernel, whose copy could take much memory, is left to oneDNN.
  static bool IsWorth(const PlaneShape& s) {
    if (!__builtin_cpu_supports("avx512f") || !s.HasNarrowPadding()) return false;
    return s.inputs < kLanes || (s.outputs >= 3 * kLanes && s.out_width >= 48);
  }

  explicit DirectWeightDiff(const PlaneShape& shape) : s_(shape) {
    merged_ = s_.inputs < kLanes;
    row_inputs_ = merged_ ? s_.kernel[1] * s_.inputs : s_.inputs;
    taps_ = merged_ ? s_.kernel[0] : s_.kernel[0] * s_.kernel[1];
    in_blocks_ = (row_inputs_ + kInputs - 1) / kInputs;
    out_blocks_ = (s_.outputs + kOutputs - 1) / kOutputs;
    block_rows_ = std::clamp<int64_t>(kPixels / s_.out_width, 1, s_.out_height);
    row_blocks_ = (s_.out_height + block_rows_ - 1) / block_rows_;
    in_rows_ = s_.LinesOf(block_rows_);
    in_width_ = (s_.out_width - 1) * s_.stride[1] + s_.kernel[1];
    cell_ = merged_ ? s_.inputs : kInputs;
    pixel_step_ = s_.stride[1] * cell_;
    row_step_ = s_.stride[0] * in_width_ * cell_;
  }

  // Computes d_weight (outputs, inputs, kernel height, kernel width), and d_bias (outputs,) unless it is null.
  void Run(const float* x, const float* dy, float* d_weight, float* d_bias) const {
    int threads = MaxThreads();
    bool by_outputs = out_blocks_ >= threads && out_blocks_ % threads == 0 && Sums() > kLargeSums;
    int64_t parts = by_outputs ? 1 : threads;
    ZeroedFloats sums(parts * Sums()), bias(parts * out_blocks_ * kOutputs);
    RunInParallel(threads, [&](int thread, int count) {
      Range outputs{0, out_blocks_}, blocks{0, s_.batch * row_blocks_};
      Range& divided = by_outputs ? outputs : blocks;
      divided = divided.Part(thread, count);
      int64_t part = by_outputs ? 0 : thread;
      Accumulate(x, dy, sums.get() + part * Sums(), bias.get() + part * out_blocks_ * kOutputs, blocks, outputs);
    });
    RunInParallel(threads, [&](int thread, int count) {
      Write(sums.get(), bias.get(), parts, d_weight, d_bias, s_.outputs * thread / count,
            s_.outputs * (thread + 1) / count);
    });
  }

 private:
  static constexpr int64_t kLargeSums = 1 << 15;

  int64_t Sums() const { return taps_ * in_blocks_ * kInputs * out_blocks_ * kOutputs; }

  // Adds the products of some blocks of rows, for some blocks of outputs.
  CAFFEJAX_AVX512 void Accumulate(const float* x, const float* dy, float* sums, float* bias, Range blocks,
                                  Range outputs) const {
    int64_t in_panel = in_rows_ * in_width_ * cell_, out_panel = block_rows_ * s_.out_width * kOutputs;
    ZeroedFloats packed_x(merged_ ? in_panel : in_blocks_ * in_panel),
        packed_dy((outputs.end - outputs.start) * out_panel);
    for (int64_t block = blocks.start; block < blocks.end; ++block) {
      int64_t image = block / row_blocks_, first = block % row_blocks_ * block_rows_;
      int64_t rows = std::min(block_rows_, s_.out_height - first);
      PackInputs(x + image * s_.height * s_.width * s_.inputs, first, rows, packed_x.get(), in_panel);
      PackDiffs(dy + (image * s_.out_height + first) * s_.out_width * s_.outputs, rows * s_.out_width, outputs,
                packed_dy.get(), out_panel, bias);
      for (int64_t tap = 0; tap < taps_; ++tap) {
        int64_t row = merged_ ? tap : tap / s_.kernel[1], column = merged_ ? 0 : tap % s_.kernel[1];
        for (int64_t o = outputs.start; o < outputs.end; ++o) {
          for (int64_t i = 0; i < in_blocks_; ++i) {
            const float* cells = packed_x.get() + (merged_ ? i * kInputs : i * in_panel) +
                                 (row * in_width_ + column) * cell_;
            (this->*SelectTile(i, o))(cells, rows, packed_dy.get() + (o - outputs.start) * out_panel,
                                      sums + ((tap * out_blocks_ + o) * in_blocks_ + i) * kInputs * kOutputs);
          }
        }
      }
    }
  }

  // Adds to `sums` (kInputs, kOutputs) the products of some inputs and diffs of all pixels of some rows. `kCount` is
  // the number of inputs, `kVectors` of vectors of outputs; all sums stay in registers.
  template <int kCount, int kVectors>
  CAFFEJAX_AVX512 void MultiplyTile(const float* x, int64_t rows, const float* dy, float* sums) const {
    __m512 total[kCount][kVectors];
#pragma GCC unroll 6
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) total[i][v] = _mm512_loadu_ps(sums + i * kOutputs + v * kLanes);
    }
    for (int64_t row = 0; row < rows; ++row, x += row_step_) {
      const float* cell = x;
      for (int64_t pixel = 0; pixel < s_.out_width; ++pixel, cell += pixel_step_, dy += kOutputs) {
        __m512 diffs[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) diffs[v] = _mm512_loadu_ps(dy + v * kLanes);
#pragma GCC unroll 6
        for (int i = 0; i < kCount; ++i) {
          __m512 value = _mm512_set1_ps(cell[i]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) total[i][v] = _mm512_fmadd_ps(value, diffs[v], total[i][v]);
        }
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + i * kOutputs + v * kLanes, total[i][v]);
    }
  }

  using Tile = void (DirectWeightDiff::*)(const float*, int64_t, const float*, float*) const;

  template <int... kCounts>
  static Tile Select(std::integer_sequence<int, kCounts...>, int64_t count, int64_t vectors) {
    static constexpr Tile tiles[][4] = {
        {&DirectWeightDiff::MultiplyTile<kCounts + 1, 1>, &DirectWeightDiff::MultiplyTile<kCounts + 1, 2>,
         &DirectWeightDiff::MultiplyTile<kCounts + 1, 3>, &DirectWeightDiff::MultiplyTile<kCounts + 1, 4>}...};
    return tiles[count - 1][vectors - 1];
  }

  // Returns the function for a block of inputs and a block of outputs.
  Tile SelectTile(int64_t in_block, int64_t out_block) const {
    int64_t count = std::min(kInputs, row_inputs_ - in_block * kInputs);
    int64_t outputs = std::min(kOutputs, s_.outputs - out_block * kOutputs);
    return Select(std::make_integer_sequence<int, kInputs>(), count, (outputs + kLanes - 1) / kLanes);
  }

  // Copies the cells that the windows of some rows read, with zeros for the padding, to panels of kInputs inputs, or to
  // one panel of all inputs if a row of a window counts as inputs.
  CAFFEJAX_AVX512 void PackInputs(const float* x, int64_t first, int64_t rows, float* to, int64_t panel) const {
    if (merged_) return s_.CopyLines(x, {first, first + rows}, to);
    int64_t count = s_.LinesOf(rows), width = in_width_ * cell_;
    int64_t start = std::min(in_width_, s_.low[1]),
            end = std::clamp(s_.width + s_.low[1], start, in_width_);  // within x
    for (int64_t r = 0; r < count; ++r, to += width) {
      int64_t row = first * s_.stride[0] - s_.low[0] + r;
      bool inside = 0 <= row && row < s_.height;
      const float* line = x + (row * s_.width + start - s_.low[1]) * s_.inputs;
      int64_t from = inside ? start : in_width_, past = inside ? end : in_width_;
      for (int64_t block = 0; block < in_blocks_; ++block) {
        float* cells = to + block * panel;
        int64_t channels = std::min(cell_, s_.inputs - block * kInputs);
        std::memset(cells, 0, from * cell_ * sizeof(float));
        std::memset(cells + past * cell_, 0, (in_width_ - past) * cell_ * sizeof(float));
        const float* cell = line + block * kInputs;
        for (int64_t c = from; c < past; ++c, cell += s_.inputs) {
          if (channels == kInputs) std::memcpy(cells + c * cell_, cell, kInputs * sizeof(float));
          else std::copy(cell, cell + channels, cells + c * cell_);
        }
      }
    }
  }

  // Copies the diffs of some pixels to panels of kOutputs outputs, and adds them to the bias's diff.
  CAFFEJAX_AVX512 void PackDiffs(const float* dy, int64_t pixels, Range outputs, float* to, int64_t panel,
                                 float* bias) const {
    for (int64_t o = outputs.start; o < outputs.end; ++o, to += panel) {
      int64_t width = std::min(kOutputs, s_.outputs - o * kOutputs);
      const float* from = dy + o * kOutputs;
      float* total = bias + o * kOutputs;
      if (width == kOutputs) {
        Floats sums[4] = {};
        for (int64_t p = 0; p < pixels; ++p, from += s_.outputs) {
          for (int v = 0; v < 4; ++v) {
            Floats diffs;
            std::memcpy(&diffs, from + v * kLanes, sizeof(Floats));
            std::memcpy(to + p * kOutputs + v * kLanes, &diffs, sizeof(Floats));
            sums[v] += diffs;
          }
        }
        for (int64_t k = 0; k < kOutputs; ++k) total[k] += sums[k / kLanes][k % kLanes];
      } else {
        for (int64_t p = 0; p < pixels; ++p, from += s_.outputs) {
          for (int64_t k = 0; k < width; ++k) total[k] += to[p * kOutputs + k] = from[k];
        }
      }
    }
  }

  // Adds the parts, and writes the diffs of outputs from `start` to `end` in Caffe's order.
  void Write(const float* sums, const float* bias, int64_t parts, float* d_weight, float* d_bias, int64_t start,
             int64_t end) const {
    int64_t cells = s_.kernel[0] * s_.kernel[1];
    for (int64_t k = start; k < end; ++k) {
      for (int64_t c = 0; c < s_.inputs; ++c) {
        for (int64_t cell = 0; cell < cells; ++cell) {
          int64_t tap = merged_ ? cell / s_.kernel[1] : cell;
          int64_t i = merged_ ? cell % s_.kernel[1] * s_.inputs + c : c;
          int64_t at = (((tap * out_blocks_ + k / kOutputs) * in_blocks_ + i / kInputs) * kInputs + i % kInputs) *
                           kOutputs +
                       k % kOutputs;
          float total = sums[at];
          for (int64_t part = 1; part < parts; ++part) total += sums[part * Sums() + at];
          d_weight[(k * s_.inputs + c) * cells + cell] = total;
        }
      }
      if (d_bias) {
        float total = 0;
        for (int64_t part = 0; part < parts; ++part) total += bias[part * out_blocks_ * kOutputs + k];
        d_bias[k] = total;
      }
    }
  }

  PlaneShape s_;
  bool merged_;  // the cells of a row of a window count as inputs, because the inputs are few
  int64_t row_inputs_, taps_, in_blocks_, out_blocks_, block_rows_, in_rows_, in_width_, row_blocks_;
  int64_t cell_, pixel_step_, row_step_;  // floats of a packed cell, and between the windows of pixels and of rows
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_WEIGHT_DIFF_H_
