// Convolutions with few channels, and the gradients of inputs that fill few registers, for processors with AVX-512.
// Milliseconds, and oneDNN's, of LeNet at 64 images: the first convolution 0.18 and 0.25, the second (20 to 50) 0.43
// and 0.53, its input's gradient 0.64 and 0.90. LeNet's training step takes 2.8 instead of 3.1.
//
// A row of a window counts as inputs, so that few lanes of registers are empty. If a last vector would have few
// outputs, these are computed with inputs in the lanes.

#ifndef CAFFEJAX_KERNELS_NARROW_CONVOLUTION_H_
#define CAFFEJAX_KERNELS_NARROW_CONVOLUTION_H_

#include "register_tiles.h"

namespace caffejax {

class NarrowConvolution {
 public:
  // Return whether this code is faster than oneDNN's by measurement.
  static bool IsWorth(const PlaneShape& s) {
    return CanCompute(s) && (s.inputs < kTileLanes ? s.outputs % (2 * kTileLanes) != 0 : RestOf(s) > 0);
  }
  static bool IsWorthForInputDiff(const PlaneShape& s) {
    bool has_empty_lanes = s.inputs < 0.7 * Panels{s.inputs}.Vectors() * kTileLanes;
    return CanCompute(s) && has_empty_lanes && s.batch >= MaxThreads() &&
           s.LinesOf(s.out_height) * s.LineFloats() <= kImageFloats;
  }

  explicit NarrowConvolution(const PlaneShape& shape)
      : s_(shape), row_inputs_(s_.kernel[1] * s_.inputs), rest_(RestOf(s_)), panels_{s_.outputs - rest_} {
    line_ = s_.LineFloats();
    is_padded_ = s_.low[0] > 0 || s_.low[1] > 0 || s_.LinesOf(s_.out_height) > s_.height ||
                 line_ > s_.width * s_.inputs;
  }

  // Packs a weight in Caffe's order, for `Run`.
  void Pack(const float* weight, float* packed) const {
    int64_t output_step = s_.kernel[0] * row_inputs_;
    RunInParallel(MaxThreads(), [&](int thread, int count) {
      for (int64_t row = thread; row < s_.kernel[0]; row += count) {
        for (int64_t p = 0; p < panels_.Count(); ++p) {
          Range vectors = panels_.VectorsOf({p, p + 1}), outputs = panels_.OutputsOf(vectors);
          int64_t step = vectors.size() * kTileLanes;
          float* to = packed + outputs.start * output_step + row * row_inputs_ * step;
          for (int64_t i = 0; i < row_inputs_; ++i, to += step) {
            const float* from = weight + WeightAt(outputs.start, row, i);
            for (int64_t k = 0; k < outputs.size(); ++k) to[k] = from[k * output_step];
            std::fill(to + outputs.size(), to + step, 0.0f);
          }
        }
        for (int64_t k = 0; k < rest_; ++k) {
          float* to = packed + PanelFloats() + (k * s_.kernel[0] + row) * RowLanes();
          for (int64_t i = 0; i < row_inputs_; ++i) to[i] = weight[WeightAt(panels_.outputs + k, row, i)];
          std::fill(to + row_inputs_, to + RowLanes(), 0.0f);
        }
      }
    });
  }

  int64_t PackedFloats() const { return PanelFloats() + rest_ * s_.kernel[0] * RowLanes(); }

  // Computes y from x, a packed weight, and a bias unless it is null.
  void Run(const float* x, const float* packed, const float* bias, bool relu, float* y) const {
    int64_t row_blocks = (s_.out_height * s_.out_width + kPixels - 1) / kPixels, threads = MaxThreads();
    if (s_.batch < threads) row_blocks = (row_blocks + threads - 1) / threads * threads;
    row_blocks = std::min(row_blocks, s_.out_height);
    int64_t most_rows = (s_.out_height + row_blocks - 1) / row_blocks, image_line = s_.width * s_.inputs;
    TileProduct product{
        s_.stride[1] * s_.inputs, s_.kernel[0], is_padded_ ? line_ : image_line, row_inputs_, s_.outputs, false, relu};
    RunInParallel(threads, [&](int thread, int count) {
      ZeroedFloats cells(is_padded_ ? s_.LinesOf(most_rows) * line_ : 0);
      Range own = Range{0, s_.batch * row_blocks}.Part(thread, count);
      for (int64_t block = own.start; block < own.end; ++block) {
        int64_t image = block / row_blocks;
        Range rows = Range{0, s_.out_height}.Part(block % row_blocks, row_blocks);
        const float* from = x + image * s_.height * image_line;
        float* to = y + (image * s_.out_height + rows.start) * s_.out_width * s_.outputs;
        if (is_padded_) s_.CopyLines(from, rows, cells.get());
        from = is_padded_ ? cells.get() : from + rows.start * s_.stride[0] * image_line;
        for (int64_t row = 0; row < rows.size(); ++row) {
          const float* line = from + row * s_.stride[0] * product.tap_step;
          float* results = to + row * s_.out_width * s_.outputs;
          for (int64_t p = 0; p < panels_.Count(); ++p) {
            WeightPanel panel = panels_.Panel(p, packed, 0, s_.kernel[0] * row_inputs_, bias);
            product.RunLine(s_.out_width, line, panel, results, FetchNothing);
          }
          if (rest_ > 0) RunRest(product, line, packed + PanelFloats(), bias, results);
        }
      }
    });
  }

  // Computes dx from dy and a weight in Caffe's order.
  void RunInputDiff(const float* dy, const float* weight, float* dx) const {
    Panels panels{row_inputs_};
    int64_t matrix = s_.outputs * panels.Vectors() * kTileLanes;
    ZeroedFloats packed(s_.kernel[0] * matrix);
    // A line of pixels is a column of the image, because the results for a row would overlap.
    TileProduct product{s_.out_width * s_.outputs, 1, 0, s_.outputs, s_.stride[0] * line_, true, false};
    int threads = MaxThreads();
    RunInParallel(threads, [&](int thread, int count) {
      for (int64_t tap = thread; tap < s_.kernel[0]; tap += count) {
        for (int64_t p = 0; p < panels.Count(); ++p) {
          Range vectors = panels.VectorsOf({p, p + 1}), inputs = panels.OutputsOf(vectors);
          for (int64_t k = 0; k < s_.outputs; ++k) {
            float* to = packed.get() + tap * matrix + inputs.start * s_.outputs + k * vectors.size() * kTileLanes;
            for (int64_t i = inputs.start; i < inputs.end; ++i) to[i - inputs.start] = weight[WeightAt(k, tap, i)];
          }
        }
      }
    });
    RunInParallel(threads, [&](int thread, int count) {
      Range own = Range{0, s_.batch}.Part(thread, count);
      for (int64_t image = own.start; image < own.end; ++image) {
        ZeroedFloats sums(s_.LinesOf(s_.out_height) * line_);
        for (int64_t tap = 0; tap < s_.kernel[0]; ++tap) {
          for (int64_t p = 0; p < panels.Count(); ++p) {
            WeightPanel panel = panels.Panel(p, packed.get() + tap * matrix, 0, s_.outputs, nullptr);
            for (int64_t column = 0; column < s_.out_width; ++column) {
              const float* from = dy + (image * s_.out_height * s_.out_width + column) * s_.outputs;
              float* to = sums.get() + tap * line_ + column * s_.stride[1] * s_.inputs;
              product.RunLine(s_.out_height, from, panel, to, FetchNothing);
            }
          }
        }
        WriteImage(sums.get(), dx + image * s_.height * s_.width * s_.inputs);
      }
    });
  }

 private:
  static constexpr int64_t kPixels = 192, kImageFloats = 1 << 17, kWeightFloats = 1 << 16, kMostRest = 4,
                           kRestPixels = 4;

  static bool CanCompute(const PlaneShape& s) {
    return __builtin_cpu_supports("avx512f") && !s.IsPointwise() && s.HasNarrowPadding() && s.OutPixels() > 0;
  }

  static const float* FetchNothing(int64_t, Range) { return nullptr; }

  // Returns the number of outputs that are computed with inputs in the lanes.
  static int64_t RestOf(const PlaneShape& s) {
    int64_t rest = s.outputs % kTileLanes;
    int64_t row_inputs = s.kernel[1] * s.inputs;
    bool is_worth = s.outputs > kTileLanes && row_inputs >= 2 * kTileLanes && s.out_width >= kRestPixels;
    bool stays_in_cache = s.kernel[0] * row_inputs * s.outputs <= kWeightFloats;  // the weight is read for each line
    return is_worth && stays_in_cache && rest <= kMostRest ? rest : 0;
  }

  int64_t PanelFloats() const { return s_.kernel[0] * row_inputs_ * panels_.Vectors() * kTileLanes; }

  // The floats of a row of a window, in full vectors.
  int64_t RowLanes() const { return (row_inputs_ + kTileLanes - 1) / kTileLanes * kTileLanes; }

  // Returns the place of a weight in Caffe's order. `input` is within a row of a window.
  int64_t WeightAt(int64_t output, int64_t row, int64_t input) const {
    int64_t column = input / s_.inputs, channel = input % s_.inputs;
    return ((output * s_.inputs + channel) * s_.kernel[0] + row) * s_.kernel[1] + column;
  }

  // Computes the last outputs of a line of pixels, with inputs in the lanes.
  void RunRest(const TileProduct& product, const float* x, const float* packed, const float* bias, float* y) const {
    using Tile = void (NarrowConvolution::*)(const TileProduct&, const float*, const float*, const float*, float*)
        const;
    static constexpr Tile kTiles[] = {&NarrowConvolution::RunRestTile<1>, &NarrowConvolution::RunRestTile<2>,
                                      &NarrowConvolution::RunRestTile<3>, &NarrowConvolution::RunRestTile<4>};
    for (int64_t pixel = 0; pixel < s_.out_width; pixel += kRestPixels) {
      int64_t start = std::max<int64_t>(0,
                                        std::min(pixel, s_.out_width - kRestPixels));  // the last two tiles may overlap
      (this->*kTiles[rest_ - 1])(product, x + start * product.pixel_step, packed, bias, y + start * s_.outputs);
    }
  }

  template <int kOutputs>
  CAFFEJAX_AVX512 void RunRestTile(const TileProduct& product, const float* x, const float* packed, const float* bias,
                                   float* y) const {
    __m512 total[kRestPixels][kOutputs];
    for (auto& sums : total) {
      for (__m512& sum : sums) sum = _mm512_setzero_ps();
    }
    for (int64_t row = 0; row < s_.kernel[0]; ++row, x += product.tap_step) {
      for (int64_t i = 0; i < row_inputs_; i += kTileLanes, packed += kTileLanes) {
        auto mask = static_cast<__mmask16>((1 << std::min(kTileLanes, row_inputs_ - i)) - 1);
        __m512 weights[kOutputs];
#pragma GCC unroll 4
        for (int k = 0; k < kOutputs; ++k) weights[k] = _mm512_loadu_ps(packed + k * s_.kernel[0] * RowLanes());
#pragma GCC unroll 8
        for (int p = 0; p < kRestPixels; ++p) {
          __m512 values = _mm512_maskz_loadu_ps(mask, x + p * product.pixel_step + i);
#pragma GCC unroll 4
          for (int k = 0; k < kOutputs; ++k) total[p][k] = _mm512_fmadd_ps(values, weights[k], total[p][k]);
        }
      }
    }
    for (int p = 0; p < kRestPixels; ++p) {
      for (int k = 0; k < kOutputs; ++k) {
        int64_t output = panels_.outputs + k;
        float result = _mm512_reduce_add_ps(total[p][k]) + (bias ? bias[output] : 0);
        y[p * s_.outputs + output] = product.relu && result <= 0 ? 0 : result;  // NaN stays NaN
      }
    }
  }

  // Copies the sums for the cells of an image. Cells that no window reads have zeros.
  void WriteImage(const float* sums, float* dx) const {
    Range inside = s_.FloatsInside();
    for (int64_t row = 0; row < s_.height; ++row, dx += s_.width * s_.inputs) {
      int64_t line = row + s_.low[0];
      std::fill(dx, dx + s_.width * s_.inputs, 0.0f);
      if (line >= s_.LinesOf(s_.out_height)) continue;
      const float* from = sums + line * line_;
      std::copy(from + inside.start, from + inside.end, dx + inside.start - s_.low[1] * s_.inputs);
    }
  }

  PlaneShape s_;
  int64_t row_inputs_, line_;  // floats of a row of a window, and of a line of cells
  int64_t rest_;  // the outputs that are computed with inputs in the lanes
  Panels panels_;  // the other outputs
  bool is_padded_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_NARROW_CONVOLUTION_H_
