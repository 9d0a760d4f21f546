// Convolutions with few inputs, and the gradients of inputs that fill few registers, in training, for processors with AVX-512.
// Milliseconds, and oneDNN's: LeNet's first convolution 0.18 and 0.25, the input's gradient of its second (20 to 50) 0.64 and
// 0.90. LeNet's training step takes 2.8 instead of 3.1.
//
// A row of a window counts as inputs, so that few lanes of registers are empty.

#ifndef CAFFEJAX_KERNELS_NARROW_CONVOLUTION_H_
#define CAFFEJAX_KERNELS_NARROW_CONVOLUTION_H_

#include "register_tiles.h"

namespace caffejax {

class NarrowConvolution {
 public:
  // Return whether this code is faster than oneDNN's by measurement.
  static bool IsWorth(const PlaneShape& s) {
    return CanCompute(s) && s.inputs < kTileLanes && s.outputs % (2 * kTileLanes) != 0;
  }
  static bool IsWorthForInputDiff(const PlaneShape& s) {
    bool has_empty_lanes = s.inputs < 0.7 * Panels{s.inputs}.Vectors() * kTileLanes;
    return CanCompute(s) && has_empty_lanes && s.batch >= MaxThreads() && NarrowConvolution(s).ImageFloats() <= kImageFloats;
  }

  explicit NarrowConvolution(const PlaneShape& shape) : s_(shape), row_inputs_(s_.kernel[1] * s_.inputs) {
    line_ = ((s_.out_width - 1) * s_.stride[1] + s_.kernel[1]) * s_.inputs;
  }

  // Computes y from x, a weight in Caffe's order, and a bias unless it is null.
  void Run(const float* x, const float* weight, const float* bias, bool relu, float* y) const {
    Panels panels{s_.outputs};
    int64_t inputs = s_.kernel[0] * row_inputs_, rows = std::clamp<int64_t>(kPixels / s_.out_width, 1, s_.out_height);
    int64_t row_blocks = (s_.out_height + rows - 1) / rows, blocks = s_.batch * row_blocks;
    ZeroedFloats packed(inputs * panels.Vectors() * kTileLanes), biases(panels.Vectors() * kTileLanes);
    for (int64_t p = 0; p < panels.Count(); ++p) {
      Range vectors = panels.VectorsOf({p, p + 1}), outputs = panels.OutputsOf(vectors);
      float* to = packed.get() + outputs.start * inputs;
      for (int64_t k = outputs.start; k < outputs.end; ++k) {
        for (int64_t row = 0; row < s_.kernel[0]; ++row) {
          for (int64_t i = 0; i < row_inputs_; ++i) {
            to[(row * row_inputs_ + i) * vectors.size() * kTileLanes + k - outputs.start] = weight[WeightAt(k, row, i)];
          }
        }
      }
    }
    if (bias) std::copy(bias, bias + s_.outputs, biases.get());
    TileProduct product{s_.stride[1] * s_.inputs, s_.kernel[0], line_, row_inputs_, s_.outputs, false, relu};
    RunInParallel(MaxThreads(), [&](int thread, int count) {
      ZeroedFloats cells(((rows - 1) * s_.stride[0] + s_.kernel[0]) * line_);
      Range own = Range{0, blocks}.Part(thread, count);
      for (int64_t block = own.start; block < own.end; ++block) {
        int64_t image = block / row_blocks, first = block % row_blocks * rows, last = std::min(first + rows, s_.out_height);
        CopyLines(x + image * s_.height * s_.width * s_.inputs, first, last - first, cells.get());
        for (int64_t p = 0; p < panels.Count(); ++p) {
          WeightPanel panel = PanelOf(packed.get(), biases.get(), panels, inputs, p);
          for (int64_t row = first; row < last; ++row) {
            const float* from = cells.get() + (row - first) * s_.stride[0] * line_;
            float* to = y + (image * s_.out_height + row) * s_.out_width * s_.outputs + FirstOf(panels, p);
            product.RunLine(s_.out_width, from, panel, to, FetchNothing);
          }
        }
      }
    });
  }

  // Computes dx from dy and a weight in Caffe's order.
  void RunInputDiff(const float* dy, const float* weight, float* dx) const {
    Panels panels{row_inputs_};
    int64_t matrix = s_.outputs * panels.Vectors() * kTileLanes;
    ZeroedFloats packed(s_.kernel[0] * matrix), zeros(panels.Vectors() * kTileLanes);
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
        ZeroedFloats sums(ImageFloats());
        for (int64_t tap = 0; tap < s_.kernel[0]; ++tap) {
          for (int64_t p = 0; p < panels.Count(); ++p) {
            WeightPanel panel = PanelOf(packed.get() + tap * matrix, zeros.get(), panels, s_.outputs, p);
            for (int64_t column = 0; column < s_.out_width; ++column) {
              const float* from = dy + (image * s_.out_height * s_.out_width + column) * s_.outputs;
              float* to = sums.get() + tap * line_ + column * s_.stride[1] * s_.inputs + FirstOf(panels, p);
              product.RunLine(s_.out_height, from, panel, to, FetchNothing);
            }
          }
        }
        WriteImage(sums.get(), dx + image * s_.height * s_.width * s_.inputs);
      }
    });
  }

 private:
  static constexpr int64_t kPixels = 192, kImageFloats = 1 << 17;

  static bool CanCompute(const PlaneShape& s) {
    return __builtin_cpu_supports("avx512f") && !s.IsPointwise() && s.HasNarrowPadding() && s.OutPixels() > 0;
  }

  static const float* FetchNothing(int64_t, Range) { return nullptr; }

  // Returns the first output of a panel.
  static int64_t FirstOf(const Panels& panels, int64_t panel) {
    return panels.VectorsOf({panel, panel + 1}).start * kTileLanes;
  }

  static WeightPanel PanelOf(const float* packed, const float* biases, const Panels& panels, int64_t inputs, int64_t panel) {
    Range vectors = panels.VectorsOf({panel, panel + 1});
    int64_t start = vectors.start * kTileLanes;
    return {packed + start * inputs, biases + start, vectors.size(), panels.LanesOf(vectors)};
  }

  // Returns the place of a weight in Caffe's order. `input` is within a row of a window.
  int64_t WeightAt(int64_t output, int64_t row, int64_t input) const {
    int64_t column = input / s_.inputs, channel = input % s_.inputs;
    return ((output * s_.inputs + channel) * s_.kernel[0] + row) * s_.kernel[1] + column;
  }

  // The lines of an image that windows read, padding included.
  int64_t Lines() const { return (s_.out_height - 1) * s_.stride[0] + s_.kernel[0]; }
  int64_t ImageFloats() const { return Lines() * line_; }

  // Returns the floats of a line that are within the image.
  Range Inside() const {
    int64_t start = std::min(line_, s_.low[1] * s_.inputs);
    return {start, std::clamp((s_.low[1] + s_.width) * s_.inputs, start, line_)};
  }

  // Copies the lines that the windows of some rows of pixels read, with zeros for the padding.
  void CopyLines(const float* x, int64_t first, int64_t rows, float* to) const {
    Range inside = Inside();
    for (int64_t line = 0; line < (rows - 1) * s_.stride[0] + s_.kernel[0]; ++line, to += line_) {
      int64_t row = first * s_.stride[0] - s_.low[0] + line;
      std::fill(to, to + line_, 0.0f);
      if (row < 0 || row >= s_.height) continue;
      const float* from = x + (row * s_.width - s_.low[1]) * s_.inputs;
      std::copy(from + inside.start, from + inside.end, to + inside.start);
    }
  }

  // Copies the sums for the cells of an image. Cells that no window reads have zeros.
  void WriteImage(const float* sums, float* dx) const {
    Range inside = Inside();
    for (int64_t row = 0; row < s_.height; ++row, dx += s_.width * s_.inputs) {
      int64_t line = row + s_.low[0];
      std::fill(dx, dx + s_.width * s_.inputs, 0.0f);
      if (line >= Lines()) continue;
      const float* from = sums + line * line_;
      std::copy(from + inside.start, from + inside.end, dx + inside.start - s_.low[1] * s_.inputs);
    }
  }

  PlaneShape s_;
  int64_t row_inputs_, line_;  // floats of a row of a window, and of a line of cells
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_NARROW_CONVOLUTION_H_
