// 1x1 convolutions in training and the gradients of their inputs, for processors with AVX-512. Milliseconds, and those
// of oneDNN with its reordering of weights, arrays not in the cache: 512 to 2048 at 7x7 2.0 and 2.4, 256 to 64 at
// 56x56 1.8 and 2.3 (batch 8), 128 to 16 at 56x56 0.66 and 1.6 (batch 16).
//
// A block of pixels stays in the core's cache while all outputs are computed, and the next block is fetched.

#ifndef CAFFEJAX_KERNELS_POINTWISE_CONVOLUTION_H_
#define CAFFEJAX_KERNELS_POINTWISE_CONVOLUTION_H_

#include "register_tiles.h"

namespace caffejax {

// Writes the transpose of `rows` x `columns` of at most 16x16 floats, and zeros in place of missing rows.
CAFFEJAX_AVX512 inline void Transpose(const float* from, int64_t step, int64_t rows, int64_t columns, float* to,
                                      int64_t to_step) {
  __m512 r[16], t[16];
  __mmask16 mask = static_cast<__mmask16>((1 << columns) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = i < rows ? _mm512_maskz_loadu_ps(mask, from + i * step) : _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m512 a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88), b = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    __m512 c = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd), d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    t[i] = _mm512_shuffle_f32x4(a, b, 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
    t[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
    t[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i < columns) _mm512_storeu_ps(to + i * to_step, t[i]);
  }
}

class PointwiseConvolution {
 public:
  // Returns whether this code is faster than oneDNN's by measurement.
  static bool IsWorth(const PlaneShape& s) {
    bool is_wide = std::min(s.inputs, s.outputs) >= kTileLanes && s.OutPixels() > 0;
    return __builtin_cpu_supports("avx512f") && s.IsPointwise() && s.StartsAreInside() && is_wide;
  }

  // If `backward`, the convolution's outputs are read, and its inputs are written.
  PointwiseConvolution(const PlaneShape& shape, bool backward)
      : s_(shape), backward_(backward), inputs_(backward ? s_.outputs : s_.inputs),
        panels_{backward ? s_.inputs : s_.outputs} {
    has_all_cells_ = s_.height == s_.out_height && s_.width == s_.out_width;
    block_ = std::clamp<int64_t>(kBlockFloats / inputs_ / kBlockPixels, 2, 16) * kBlockPixels;
  }

  // Computes y from x, a weight in Caffe's order, and a bias unless it is null.
  void Run(const float* x, const float* weight, const float* bias, bool relu, float* y) const {
    // Large weights are divided among the threads, else the pixels are. A thread packs the weights for a group of
    // panels.
    int64_t threads = MaxThreads(), count = panels_.Count();
    int64_t panel_parts = inputs_ * panels_.outputs > kWeightFloats ? std::min(threads, count) : 1;
    int64_t pixel_parts = std::max<int64_t>(1, threads / panel_parts);
    RunInParallel(panel_parts * pixel_parts, [&](int thread, int all) {
      for (int64_t part = thread; part < panel_parts * pixel_parts; part += all) {
        Range panels = Range{0, count}.Part(part % panel_parts, panel_parts);
        Range pixels = Range{0, s_.OutPixels()}.Part(part / panel_parts, pixel_parts);
        int64_t group = std::clamp<int64_t>(kWeightFloats / (kTileVectors * kTileLanes * inputs_), 1, panels.size());
        int64_t groups = (panels.size() + group - 1) / group;
        for (int64_t g = 0; g < groups; ++g) Compute(x, weight, bias, relu, pixels, panels.Part(g, groups), y);
      }
    });
  }

 private:
  static constexpr int64_t kBlockPixels = 24, kBlockFloats = 1 << 16, kWeightFloats = 1 << 17;

  // Computes the outputs of some panels for some pixels.
  void Compute(const float* x, const float* weight, const float* bias, bool relu, Range pixels, Range panels,
               float* y) const {
    Range vectors = panels_.VectorsOf(panels), outputs = panels_.OutputsOf(vectors);
    ZeroedFloats packed(vectors.size() * kTileLanes * inputs_);
    for (int64_t p = panels.start; p < panels.end; ++p) {
      Range own = panels_.VectorsOf({p, p + 1});
      Pack(weight, own, packed.get() + (own.start - vectors.start) * kTileLanes * inputs_);
    }
    bool gathers = !has_all_cells_ && !backward_, scatters = !has_all_cells_ && backward_;
    ZeroedFloats cells(gathers ? block_ * inputs_ : 0), results(scatters ? block_ * panels_.outputs : 0);
    TileProduct product{inputs_, 1, 0, inputs_, panels_.outputs, false, relu};
    for (int64_t start = pixels.start; start < pixels.end; start += block_) {
      int64_t count = std::min(block_, pixels.end - start), following = std::min(block_, pixels.end - start - count);
      if (gathers) s_.GatherCells(x, {start, start + count}, cells.get());
      const float* from = gathers ? cells.get() : x + start * inputs_;
      float* to = scatters ? results.get() : y + start * panels_.outputs;
      for (int64_t p = panels.start; p < panels.end; ++p) {
        WeightPanel panel = panels_.Panel(p, packed.get(), panels.start, inputs_, bias);
        product.RunLine(count, from, panel, to, [&](int64_t tile, Range part) {
          bool fetches = !gathers && tile % panels.size() == p - panels.start && part.end <= following;
          return fetches ? from + (block_ + part.start) * inputs_ : nullptr;
        });
      }
      if (scatters) Scatter(results.get(), start, count, outputs, y);
    }
  }

  // Copies the weights of some vectors of outputs to (inputs, outputs).
  void Pack(const float* weight, Range vectors, float* to) const {
    int64_t step = vectors.size() * kTileLanes;
    for (int64_t i = 0; i < inputs_; i += kTileLanes) {
      for (int64_t v = vectors.start; v < vectors.end; ++v) {
        float* at = to + i * step + (v - vectors.start) * kTileLanes;
        int64_t rows = std::min(kTileLanes, inputs_ - i), lanes = panels_.LanesOf({v, v + 1});
        if (backward_) {
          const float* from = weight + i * panels_.outputs + v * kTileLanes;
          for (int64_t r = 0; r < rows; ++r)
            std::memcpy(at + r * step, from + r * panels_.outputs, lanes * sizeof(float));
        } else {
          Transpose(weight + v * kTileLanes * inputs_ + i, inputs_, lanes, rows, at, step);
        }
      }
    }
  }

  // Writes the results for some pixels to their cells, and zeros to the cells between them and the next pixels'.
  void Scatter(const float* results, int64_t first, int64_t count, Range outputs, float* y) const {
    size_t bytes = outputs.size() * sizeof(float);
    for (int64_t p = first; p < first + count; ++p, results += panels_.outputs) {
      int64_t row = p / s_.out_width % s_.out_height, column = p % s_.out_width;
      int64_t rows = row + 1 < s_.out_height ? s_.stride[0] : s_.height - row * s_.stride[0];
      int64_t columns = column + 1 < s_.out_width ? s_.stride[1] : s_.width - column * s_.stride[1];
      float* to = y + s_.CellOf(p) * panels_.outputs + outputs.start;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          std::memset(to + (r * s_.width + c) * panels_.outputs, 0, bytes);
        }
      }
      std::memcpy(to, results + outputs.start, bytes);
    }
  }

  PlaneShape s_;
  bool backward_, has_all_cells_;
  int64_t inputs_;
  Panels panels_;
  int64_t block_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_POINTWISE_CONVOLUTION_H_
